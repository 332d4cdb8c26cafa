"""Texts in five languages, and texts that tokenizers stumble over."""

from xling_tf.corpora.folder import SAMPLE_FOLDER

# What rules look at, and what splits or joins words.
_VISIBLE = """don't DON'T he's IT'Sſ 'ſ l'eau 'quoted' ’tis `` " «no» U.S. x.y 1,234 1,2,3 10:30 ٣,٤
    ½ ... .... … -- - _ . ' , : hola HOLA ΣΑΣ İI ß é नमस्ते สวัสดี שלום مرحبا ａｂ 我爱北京 カー
    ひらがなー ー ｶﾞﾊﾟｰ 二〇一〇年 C语言3月 我a爱 ประเทศไทย2566 น้ำ เเ ะกะ ค.ศ. ฯลฯ ๑๒ ພາສາລາວ ວຽກ
    ភាសាខ្មែរ មិត្តភក្តិ ကောင်းပါ တက္ကသိုလ် 한국어 𠮷 😀 👍🏽 👩‍👩‍👧 🇪🇸 <empty> <s> </s> <unk> ▁ ▁▁a"""
FRAGMENTS = [
    *_VISIBLE.split(),
    "e\u0301",
    "\0",
    "\x7f",
    "\x85",
    "\u00a0",
    "\u200b",
    "\u200d",
    "\u202e",
    "\u3000",
    "\ufeff",
    "\u0301\u0323e\u0323\u0301",
    "\u1112\u1161\u11ab",
    "\u304b\u3099",
    "葛\U000e0100城",
    "\u17d2\u1780\u1039",
    "x\u0e48\u0301",
    "\u212b",
    "o\u031b\u0301" * 200,
    "\ufffd",
    "\uffff",
    "\ue000",
    "\U0010ffff",
    "\ud800",
    "x" * 600,
    "猫" * 300,
    "\n",
    "\t",
    " ",
]


def sample_sentences() -> list[str]:
    """The sentences of the built-in translations, in five languages."""
    files = [path.read_text("utf-8") for path in sorted((SAMPLE_FOLDER / "parallel").iterdir())]
    return [text for file in files for line in file.splitlines() for text in line.split("\t")[:2]]
