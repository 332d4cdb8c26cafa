"""Turns messages of programs and games into plain text, or tells that they have gaps to fill."""

import html
import re

_TAG = re.compile(r"</?([a-zA-Z][\w.:-]*)((?:[\s=/][^<>]*)?)>")
_BREAK = re.compile(r"<(?:br|p|/p|li|ul|/ul|ol|/ol|h\d|/h\d|tr|div|/div)\s*/?>", re.IGNORECASE)
_INLINE = re.compile(
    r"(?:a|b|big|bold|code|color\w*|em|emphasis|filename|font|format|guilabel|guimenu|header|html|i|img"
    r"|info|good|bad|italic|kbd|link|neutral|note|nobr|numid|p|s|small|span|strong|sub|sup|title|tt|u"
    r"|br|li|ul|ol|h\d|tr|td|table|div|body|head|center|interface|qt|para|c_\w+|warning)",
    re.IGNORECASE,
)
_GAP = re.compile(
    r"%(?:\d+\$)?[-+0#]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|j|t)?[diouxXeEfFgGcsSp](?![a-z])"  # printf
    r"|%(?:[LQ]?\d|\(\w+\)|n\b|[A-Za-z]\b|\*|%)|%\w+%"  # Qt, Python, strftime
    r"|\{[^{}]*\}|\[\[|\]\]"  # braces, wiki links
    r"|[$@][A-Za-z_{(]\w*|\$\d|\w+@\w+|@\w*@"  # shell, WML, help macros
    r"|\\[a-z]|\b\w+=['\"]|[<>]|\|\w"  # escapes, attributes, what is left of tags
)
_CONTEXT = re.compile(r"^(?:[\w ()/'-]{1,60}\^|\?[\w -]{1,30}:|[A-Z][\w -]{0,30}\|(?=\S))")
_CJK_ACCELERATOR = re.compile(r"\s*[(（][_&~]\w[)）]")
_ACCELERATOR = re.compile(r"(?<!\w)[_&~](?=\w)")
# "E_xit"; in longer texts than a menu has, it is an identifier.
_MIDDLE_ACCELERATOR = re.compile(r"(?<=[^\W_])[_&](?=[^\W_])")
_MAX_LABEL = 40


def plain_text(message: str) -> str | None:
    """The message without context prefix, tags, entities and accelerators.

    Args:
        message: A gettext message, in any of the dialects of markup.

    Returns:
        Plain text, or None where the message has gaps that a program fills in, or foreign markup.

    Example:
        >>> plain_text("female^The <b>_witch</b> &amp; her cat")
        'The witch & her cat'
        >>> plain_text("%s has been slain") is None
        True
    """
    text = _CONTEXT.sub("", message)
    if "<" in text:
        text = _BREAK.sub("\n\n", text)
        if any(not _INLINE.fullmatch(tag[1]) for tag in _TAG.finditer(text)):
            return None
        text = _TAG.sub("", text)
    try:
        text = html.unescape(text) if "&" in text else text
    except ValueError:  # from `int`, of a number of thousands of digits
        return None
    if _GAP.search(text):
        return None
    text = _CJK_ACCELERATOR.sub("", text)
    if len(text) <= _MAX_LABEL:
        text = _MIDDLE_ACCELERATOR.sub("", text)
    return _ACCELERATOR.sub("", text).strip()
