"""The one exception for mistakes that the person at the keyboard can mend."""


class UserError(ValueError):
    """A mistake in flags, files or data; its one-line message says what to do about it.

    Programs print the message without a traceback and exit with status 2.
    """
