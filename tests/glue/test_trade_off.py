"""The picture of two measures of several models against each other."""

from agg_fairseq import plots


def test_a_point_is_the_mean_over_seeds():
    points = {"mle": [[120.0, 60.0], [122.0, 62.0]], "agg": [[121.0, 20.0]]}
    panel = plots.trade_off(points, ("PPL total", "PPL rare")).axes[0]
    drawn = {text.get_text(): text.xy for text in panel.texts}
    assert drawn == {"mle": (121.0, 61.0), "agg": (121.0, 20.0)}
    assert (panel.get_xlabel(), panel.get_ylabel(), panel.get_yscale()) == ("PPL total", "PPL rare", "log")
