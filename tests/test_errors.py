"""Messages of other libraries in one line."""

import time

from xling_tf.errors import first_line, one_line


def test_a_message_that_repeats_a_long_text_takes_no_time():
    text, started = " " * 300_000 + "x", time.process_time()
    assert len(first_line("not a number: " + text)) <= 500
    assert len(first_line("/a" * 300_000)) <= 500
    assert one_line(ValueError("not a number: " + text)) == "not a number:"
    assert time.process_time() - started < 1
    assert first_line("no [/tmp/a] [[{{node " + text) == "no [...]"
