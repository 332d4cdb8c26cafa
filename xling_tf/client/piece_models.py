"""SentencePiece's models as messages, and the check of their rules for characters; needs no
TensorFlow.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from ..errors import UserError

# Values in SentencePiece's sentencepiece_model.proto, and the fields of it that are used here.
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
# The module that sentencepiece ships for it needs a newer protobuf than TensorFlow allows.
_PROTO = """
name: "pieces.proto" package: "pieces" syntax: "proto2"
message_type {
  name: "Piece"
  field { name: "piece" number: 1 type: TYPE_STRING }
  field { name: "score" number: 2 type: TYPE_FLOAT }
  field { name: "type" number: 3 type: TYPE_INT32 default_value: "1" }
}
message_type {
  name: "Trainer"
  field { name: "model_type" number: 3 type: TYPE_INT32 default_value: "1" }
  field { name: "byte_fallback" number: 35 type: TYPE_BOOL }
  field { name: "bos_piece" number: 46 type: TYPE_STRING default_value: "<s>" }
  field { name: "eos_piece" number: 47 type: TYPE_STRING default_value: "</s>" }
}
message_type {
  name: "Normalizer"
  field { name: "precompiled_charsmap" number: 2 type: TYPE_BYTES }
  field { name: "add_dummy_prefix" number: 3 type: TYPE_BOOL default_value: "true" }
  field { name: "remove_extra_whitespaces" number: 4 type: TYPE_BOOL default_value: "true" }
}
message_type {
  name: "Model"
  field {
    name: "pieces" number: 1 type: TYPE_MESSAGE type_name: ".pieces.Piece" label: LABEL_REPEATED
  }
  field { name: "trainer_spec" number: 2 type: TYPE_MESSAGE type_name: ".pieces.Trainer" }
  field { name: "normalizer_spec" number: 3 type: TYPE_MESSAGE type_name: ".pieces.Normalizer" }
  field { name: "self_test_data" number: 4 type: TYPE_BYTES }
  field { name: "denormalizer_spec" number: 5 type: TYPE_MESSAGE type_name: ".pieces.Normalizer" }
}
"""
# SentencePiece keeps this many of the rules that match at one place of a text, without a check.
_RULES_AT_A_PLACE = 32
_RULE_BYTES = 255  # longest key and longest replacement; those of NFKC have at most 33 bytes
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto()))
_MODEL = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("pieces.Model"))


def model_proto(serialized: bytes = b"") -> Any:
    """Parses SentencePiece's model: a message with the fields above, which keeps all others."""
    return _MODEL.FromString(serialized)


def require_charsmaps(proto: Any) -> None:
    """Checks the rules for characters of a model; see `require_charsmap`."""
    for spec in (proto.normalizer_spec, proto.denormalizer_spec):
        require_charsmap(spec.precompiled_charsmap)


def require_charsmap(charsmap: bytes) -> None:
    """Checks that SentencePiece can apply its rules for characters without leaving their bytes.

    SentencePiece does not check them: a made-up `precompiled_charsmap` would end the process.
    Without bytes, there are no rules. The first four bytes are the size of a double-array trie
    (Darts), whose replacements follow it, each with a zero byte at its end. From a state, a byte of
    a text leads to the unit at `state ^ byte`; if the unit has the byte as its label, it leads to
    the state `unit's place ^ its offset`.

    Raises:
        UserError: A text could lead out of the trie or of the replacements, or match without end.
    """
    if not charsmap:
        return
    size = int.from_bytes(charsmap[:4], "little")
    is_whole = size % 4 == 0 and size + 4 < len(charsmap)
    units = np.frombuffer(charsmap, "<u4", size // 4, 4) if is_whole else ()
    strings = charsmap[4 + size :]
    if not len(units) or not _stays_inside(np.asarray(units, np.int64), strings):
        raise UserError(
            "precompiled_charsmap must have the rules for characters that SentencePiece has "
            f"compiled, but its {len(charsmap)} bytes are damaged or made up; download the model "
            "again"
        )


def _stays_inside(units: Any, strings: bytes) -> bool:
    """True if no text leads out of the units of a trie, or out of the replacements."""
    if not strings.endswith(b"\0") or max(map(len, strings.split(b"\0"))) > _RULE_BYTES:
        return False
    places = np.arange(len(units))
    is_step = units >> 31 == 0  # the others hold values
    before = places ^ (units & 0xFF)
    after = places ^ (units >> 10 << ((units & 0x200) >> 6))
    ends_rule = (units >> 8) & 1
    # The root leads to its state whatever it is.
    states, rules = np.unique(after[:1]), np.zeros(1, np.int64)
    for _ in range(_RULE_BYTES):
        if (states | 0xFF).max() >= len(units):
            return False
        known = np.full(len(units), -1)
        known[states] = rules
        steps = np.flatnonzero(is_step & (before < len(units)))
        steps = steps[known[before[steps]] >= 0]
        if not len(steps):
            return True
        ends = steps[ends_rule[steps] == 1]
        if (after[steps] >= len(units)).any():
            return False
        if ((units[after[ends]] & 0x7FFFFFFF) >= len(strings)).any():
            return False
        most = np.full(len(units), -1)
        np.maximum.at(most, after[steps], known[before[steps]] + ends_rule[steps])
        states = np.flatnonzero(most >= 0)
        rules = most[states]
        if rules.max() > _RULES_AT_A_PLACE:
            return False
    return False  # longer than any key: the trie leads back to itself


def piece_pairs(piece: str, pieces: Collection[str]) -> list[tuple[str, str]]:
    """Returns the pairs of pieces that make a piece, in BPE; the longest first one comes first."""
    pairs = ((piece[:place], piece[place:]) for place in range(len(piece) - 1, 0, -1))
    return [pair for pair in pairs if pair[0] in pieces and pair[1] in pieces]
