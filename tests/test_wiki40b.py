from xling_tf.corpora.records import SentenceTriplet
from xling_tf.corpora.wiki40b import article_sentences, article_triplets

# As the rows of the dataset are.
ARTICLE = (
    "\n_START_ARTICLE_\nAda Lovelace\n_START_PARAGRAPH_\nAda Lovelace wrote programs. Dr. Babbage "
    "had the machine._NEWLINE_She died in 1852.\n_START_SECTION_\nEarly life\n_START_PARAGRAPH_\n"
    "She was born in London.\n_START_SECTION_\nDeath\n_START_SECTION_\nBurial\n_START_PARAGRAPH_\n"
    "It took place in Hucknall.\n"
)
SENTENCES = [
    "Ada Lovelace",
    "Ada Lovelace wrote programs.",
    "Dr. Babbage had the machine.",
    "She died in 1852.",
    "Early life",
    "She was born in London.",
    "Death",
    "Burial",
    "It took place in Hucknall.",
]


def test_titles_and_section_names_are_sentences_in_their_places():
    assert article_sentences(ARTICLE, "en") == SENTENCES


def test_a_section_name_is_one_sentence_whatever_is_in_it():
    text = "\n_START_ARTICLE_\nWho? Me!\n_START_PARAGRAPH_\nWho? Me!"
    assert article_sentences(text, "en") == ["Who? Me!", "Who?", "Me!"]


def test_what_is_no_article_has_no_sentences():
    assert article_sentences("", "en") == []
    assert article_sentences("no mark", "en") == []
    assert article_sentences("\n_START_ARTICLE_\n\n_START_PARAGRAPH_\n_NEWLINE_\n", "en") == []


def test_triplets_are_contiguous():
    triplets = list(article_triplets(ARTICLE, "en"))
    assert triplets == [SentenceTriplet(*SENTENCES[i : i + 3]) for i in range(7)]


def test_no_triplet_spans_a_sentence_that_is_left_out():
    # The fourth of seven lines is a formula: only the first and the last three are contiguous.
    lines = ["One two.", "Three four.", "Five six.", "= 1 + 2 = 3", "Seven.", "Eight.", "Nine."]
    text = "_START_ARTICLE_\n" + "".join(f"_START_SECTION_\n{line}\n" for line in lines)
    assert list(article_triplets(text, "en")) == [
        SentenceTriplet("One two.", "Three four.", "Five six."),
        SentenceTriplet("Seven.", "Eight.", "Nine."),
    ]


def test_chinese_sentences_are_split():
    text = "\n_START_ARTICLE_\n北京\n_START_PARAGRAPH_\n北京是中国的首都。它有很多人口。"
    assert article_sentences(text, "zh") == ["北京", "北京是中国的首都。", "它有很多人口。"]
