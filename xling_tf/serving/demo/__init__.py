"""The demo page that the server shows at its root; it calls nothing but the server's REST API."""
