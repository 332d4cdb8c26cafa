"""The errors of the protocol: a canonical code, told as an HTTP status, and a message."""


class ServingError(Exception):
    """A request that is not answered; clients read `{"error": message}`.

    The statuses are those of ToHTTPStatusCode (TensorFlow Serving, model_servers/http_server.cc).

    Example:
        >>> ServingError.not_found("Servable not found for request: Latest(x)").status
        404

    Attributes:
        status: The HTTP status.
        message: One sentence for the client.
    """

    def __init__(self, status: int, message: str) -> None:
        """An error of any status; the canonical ones have constructors of their own."""
        super().__init__(message)
        self.status = status
        self.message = message

    @classmethod
    def invalid_argument(cls, message: str) -> "ServingError":
        """INVALID_ARGUMENT: the request cannot be right in any state of the server."""
        return cls(400, message)

    @classmethod
    def not_found(cls, message: str) -> "ServingError":
        """NOT_FOUND: no such model or version."""
        return cls(404, message)

    @classmethod
    def resource_exhausted(cls, message: str) -> "ServingError":
        """RESOURCE_EXHAUSTED: the queue is full."""
        return cls(429, message)

    @classmethod
    def internal(cls, message: str) -> "ServingError":
        """INTERNAL: the server's fault."""
        return cls(500, message)

    @classmethod
    def unimplemented(cls, message: str) -> "ServingError":
        """UNIMPLEMENTED: the protocol knows it, this server does not."""
        return cls(501, message)

    @classmethod
    def unavailable(cls, message: str) -> "ServingError":
        """UNAVAILABLE: not now; the same request may be answered later."""
        return cls(503, message)

    @classmethod
    def deadline_exceeded(cls, message: str) -> "ServingError":
        """DEADLINE_EXCEEDED: it took too long."""
        return cls(504, message)
