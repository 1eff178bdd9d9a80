"""The OpenAPI document: FastAPI's, with what it can't know of: how errors look and which there are, what streams send,
and how callers say who they are. Installed by app.py."""

from typing import Any

from fastapi import FastAPI

from runyard_gateway.open_paths import OPEN_PATHS

_TEXTS = {
    400: "The options contradict each other, or what was asked isn't possible.",
    401: "No valid API key or token.",
    404: "What is named doesn't exist for this user.",
    408: "The body didn't come in time.",
    409: "Something that goes on, or that exists, is in the way.",
    413: "The body is larger than allowed.",
    422: "A field has a wrong type or value; the sentence names it.",
    429: "Every place is taken.",
    500: "The database doesn't answer.",
    503: "A dependency doesn't answer, or the server is at its limits: try again after Retry-After seconds.",
}
_ERROR = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"], "title": "Error"}
_BODY_ERRORS = (400, 401, 404, 408, 409, 413, 422, 429, 503)
_ERRORS = (400, 401, 404, 409, 422, 429, 503)


def describe(app: FastAPI) -> None:
    """Makes the app's document whole."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = made()
            document["components"]["schemas"]["Error"] = _ERROR
            for unused in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(unused, None)
            document["components"]["securitySchemes"] = {
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "token": {"type": "http", "scheme": "bearer"},
            }
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    _complete(path, operation)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


def _complete(path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    for status in _errors_of(path, operation):
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        responses[str(status)] = {"description": _TEXTS[status], "content": content}
    if path not in OPEN_PATHS:
        operation["security"] = [{"key": []}, {"token": []}]
    if path.endswith("/stream"):
        description = "Server-sent events; each has an id, and comments keep the connection alive."
        responses["200"] = {
            "description": description,
            "content": {"text/event-stream": {}},
        }
    if path.endswith("/cancel") and "{run_id}" in path:
        responses["202"] = {"description": "Asked to stop."}


def _errors_of(path: str, operation: dict[str, Any]) -> tuple[int, ...]:
    if path == "/info":
        return ()
    if path in OPEN_PATHS:
        return (422, 500, 503)
    return _BODY_ERRORS if "requestBody" in operation else _ERRORS
