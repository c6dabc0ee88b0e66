"""The OpenAPI document: what it promises holds for whatever is sent."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tests.servers.http_server import Served, serving

EXAMPLES = 12
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("document"))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with serving(config="[server]\nrate_per_minute = 0\n[telemetry]\nprometheus = true\n") as served:
            yield served


def test_every_route_keeps_what_the_document_promises(served: Served) -> None:
    document = schemathesis.openapi.from_dict(served.app.openapi())
    tried = 0
    for found in document.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
        @given(case=operation.as_strategy())
        def holds(case: Any) -> None:
            case.call_and_validate(base_url=served.url, checks=CHECKS)

        holds()
        tried += 1
    assert tried == len(list(document.get_all_operations())) > 30


def test_every_operation_and_answer_is_described(served: Served) -> None:
    for path, operations in served.app.openapi()["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)
            assert all(answer["description"] for answer in operation["responses"].values()), (method, path)
            if path.startswith("/v1/"):
                assert operation["responses"]["422"]["content"]["application/json"]["schema"]["$ref"].endswith("Error")
