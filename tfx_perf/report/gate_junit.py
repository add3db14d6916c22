"""The gate's decision as JUnit XML, which every CI system shows as tests."""

import re
from xml.etree import ElementTree

from tfx_perf.gate.decision import GateRecord

FILE_NAME = "junit.xml"
_SUITE = "tfx-perf gate"
# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(record: GateRecord) -> str:
    """Returns one test case for each check, and one for the decision.

    A check that refuses is a failure; one that could not be made, or that only reports and
    has something to report, is skipped, with its reason.
    """
    suite = ElementTree.Element("testsuite", name=_SUITE)
    decision = _case(suite, "decision")
    if not record.blessed:
        _add(decision, "failure", record.headline)
    for outcome in record.outcomes:
        case = _case(suite, f"{outcome.metric} {outcome.kind}")
        if outcome.refuses:
            _add(case, "failure", outcome.reason, type=outcome.verdict.value)
        elif outcome.verdict.value != "pass":
            _add(case, "skipped", f"{outcome.verdict.value}: {outcome.reason}")
    for kind, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(kind, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite)))
    suite.set("errors", "0")
    suite.set("timestamp", record.candidate.time.isoformat(timespec="seconds"))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", name=name, classname=_SUITE, time="0")


def _add(case: ElementTree.Element, tag: str, message: str, **attributes: str) -> None:
    text = _FORBIDDEN.sub("�", message)
    ElementTree.SubElement(case, tag, {"message": text, **attributes}).text = text
