"""The demo page, its files and the list of models it can choose from, as routes."""

from collections.abc import Mapping
from importlib import resources
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from xling_tf.serving.errors import ServingError
from xling_tf.serving.signatures import Signature

_JAVASCRIPT = "text/javascript; charset=utf-8"
# A request names a row of this table, never a path.
ASSETS = {
    "demo.css": "text/css; charset=utf-8",
    "demo.js": _JAVASCRIPT,
    "client.js": _JAVASCRIPT,
    "examples.js": _JAVASCRIPT,
    "heat_map.js": _JAVASCRIPT,
    "neighbours.js": _JAVASCRIPT,
    "sentence_list.js": _JAVASCRIPT,
    "sentences.tsv": "text/tab-separated-values; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
HEADERS = {
    # No inline script or style, and nothing of another origin, runs or is loaded or asked.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A server that was updated shows its new page at once.
    "Cache-Control": "no-cache",
}


class Models(Protocol):
    """What the page needs to know of a server."""

    def models(self) -> list[str]:
        """The models' names."""
        ...

    def signatures(self, name: str) -> Mapping[str, Signature]:
        """The signatures of the model's version that is served."""
        ...


def demo_routes(server: Models) -> list[Route]:
    """Makes the routes of the page, of its files and of `/demo/models`.

    The files are read once, here.

    Args:
        server: Tells which models there are.

    Returns:
        Routes for `/`, `/demo/models` and everything else under `/demo/`.
    """
    folder = resources.files(__package__)
    page = (folder / "index.html").read_bytes()
    assets = {name: (folder / name).read_bytes() for name in ASSETS}

    async def index(request: Request) -> Response:
        return Response(page, media_type="text/html", headers=HEADERS)

    async def models(request: Request) -> Response:
        return JSONResponse({"models": describe_models(server)}, headers=HEADERS)

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets:
            message = {"error": f"The demo page has no file {name!r}"}
            return JSONResponse(message, status_code=404, headers=HEADERS)
        return Response(assets[name], media_type=ASSETS[name], headers=HEADERS)

    return [
        Route("/", index),
        Route("/demo/models", models),
        Route("/demo/{name:path}", asset),
    ]


def describe_models(server: Models) -> list[dict[str, Any]]:
    """Lists what the page can call: signatures of strings, with those outputs that can be vectors.

    Args:
        server: Tells which models there are.

    Returns:
        One entry a model: its `name` and, by their names, `signatures` with the names of `inputs`
        and `outputs`; a model that no version of can be served has an `error` and no signatures.
    """
    return [_describe(server, name) for name in server.models()]


def _describe(server: Models, name: str) -> dict[str, Any]:
    try:
        signatures = server.signatures(name)
    except ServingError as error:
        return {"name": name, "signatures": {}, "error": error.message}
    described = {
        key: {
            "inputs": list(signature.inputs),
            "outputs": [
                output for output, info in signature.outputs.items() if info.dtype == "DT_FLOAT"
            ],
        }
        for key, signature in signatures.items()
        if signature.inputs and all(info.dtype == "DT_STRING" for info in signature.inputs.values())
    }
    return {"name": name, "signatures": described}
