from xling_tf.evaluators.table import format_table


def test_a_line_a_score_with_counts_whole():
    table = format_table(
        {"one": {"pearson_angular": 0.75, "num_pairs": 1500.0}, "second": {"p": -0.00001}}
    )
    assert table.splitlines() == [
        "suite    metric             value",
        "-------  ---------------  -------",
        "one      pearson_angular   0.7500",
        "one      num_pairs           1500",
        "second   p                -0.0000",
    ]


def test_no_results():
    assert format_table({}).split() == ["suite", "metric", "value"] + ["-" * n for n in (7, 8, 7)]
