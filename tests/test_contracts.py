"""A contract that does not hold says what breaks, and whether anybody knows these versions."""

import importlib.metadata

import pytest

from tests import contracts


@contracts.contract("Nothing is saved.")
def saves(text):
    assert text == "saved"


def test_a_contract_that_holds_says_nothing():
    saves("saved")


def test_a_broken_contract_says_what_breaks_on_versions_that_were_checked(monkeypatch):
    installed = tuple(map(importlib.metadata.version, contracts.PACKAGES))
    monkeypatch.setattr(contracts, "CHECKED_ON", {installed})
    with pytest.raises(AssertionError, match=r"^Nothing is saved\. It was checked on .*flow 2"):
        saves("lost")


def test_a_broken_contract_says_that_nobody_checked_these_versions(monkeypatch):
    monkeypatch.setattr(contracts, "CHECKED_ON", {("1.0", "2.0", "3.0")})
    with pytest.raises(AssertionError, match=r"^Nothing is saved\. It was never .* '2.0'"):
        saves("lost")
