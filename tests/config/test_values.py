"""Kinds of values that several sections have."""

import pytest

from tfx_perf.config import PerfConfig, base


@pytest.mark.parametrize("host", ["service", "10.0.0.1", "[::1]", "a.b-c.svc.cluster.local"])
def test_addresses_of_a_service(host):
    address = f"grpc://{host}:5050"
    assert PerfConfig.from_dict({"input": {"service_address": address}}).input.service_address
    assert base.grpc_address(address) == (host.strip("[]"), 5050)


@pytest.mark.parametrize("rest", ["", ":0", ":5050/path", ":50 50", "@other:1", ":1\n"])
def test_an_invalid_address_is_refused(rest):
    with pytest.raises(ValueError, match="grpc://HOST:PORT"):
        base.grpc_address(f"grpc://host{rest}")
