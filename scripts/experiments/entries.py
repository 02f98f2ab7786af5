"""Everything that reproduce.sh runs: the tables and figures of the papers, and our own experiments on small models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from agg_fairseq.columns import METRICS, NEXT_TOKENS
from agg_fairseq.errors import UserError
from agg_fairseq.files import read_json_object
from agg_fairseq.names import HUMAN

from ..command import ROOT
from ..data.prepared_folder import MANIFEST
from . import agg, agps, cosreg, f2
from .corpora import DOCUMENTATION, WMT14, wikitext_in_words
from .experiment import Column, Corpus, Experiment, Method, Model
from .measures import (
    COMPARISON,
    SHARES,
    bleu,
    fine_tuned,
    isotropy,
    lowest_on_old,
    perplexity,
    push_pull,
    texts,
    titled,
)
from .pictures import RARE_TOKENS, SINGULAR_VALUES, projection, trade_off

EXPERIMENTS = {**agg.EXPERIMENTS, **agps.EXPERIMENTS, **f2.EXPERIMENTS, **cosreg.EXPERIMENTS}
"""Tables and figures, by the names that the command line takes."""

AGG = ("criterion._name=agg", "criterion.agg_rare_fraction=0.3")
WINDOW = "criterion.agg_window=200"
FADED = ("criterion._name=agg", "criterion.agg_rare_fraction=0.6", "criterion.agg_gates=faded")
BIAS = ("model._name=transformer_lm_unigram",)
FIXED_BIAS = (*BIAS, "model.unigram_bias=fixed")
BETA2 = "optimizer.adam_betas='(0.9,0.999)'"
COUPLED = ("optimizer._name=coupled_adam",)
FREEZE = "criterion._name=freeze_rare"
F2 = ("model._name=transformer_lm_f2", "criterion._name=f2_softmax")

CURES: Mapping[str, tuple[str, ...]] = {
    "mle": (),
    "mle-beta2-0.999": (BETA2,),
    "agg": (*AGG, WINDOW),
    "agg-beta2-0.999": (*AGG, WINDOW, BETA2),
    "bias-fixed": FIXED_BIAS,
    "bias-fixed-beta2-0.999": (*FIXED_BIAS, BETA2),
    "bias-fixed-agg": (*FIXED_BIAS, *AGG, WINDOW),
    "bias-agg": (*BIAS, *AGG, WINDOW),
    "agg-faded": (*FADED, WINDOW),
    "agps": (  # rank 900 occurs 222 times, and the paper asks for a μ1 above that
        "criterion._name=agps", "criterion.agps_rare_rank=900", "criterion.agps_mu1=250", "criterion.agps_mu2=20",
    ),
    "coupled-adam": COUPLED,
    "f2": F2,
    "cosreg": ("criterion._name=cosreg",),
    "mu-loss": ("criterion.mu_loss=1",),
    "centering": ("criterion.center_output=true",),
    "z-loss": ("criterion.z_loss=1e-4",),
    "adversarial": ("criterion.adv_epsilon=0.005",),
}  # fmt: skip
"""Overrides of configs/cures/mle.yaml by the name of the model."""

EMBEDDING, APPEARANCES = "optimizer._name=embedding_adam", "optimizer.embedding_memory=appearances"
SECOND_MOMENTS: Mapping[str, tuple[str, ...]] = {
    "mle": (),
    "all-0.999": (BETA2,),
    "w-0.999": (EMBEDDING, "optimizer.embedding_beta2=0.999"),
    "others-0.999": (EMBEDDING, "optimizer.embedding_beta2=0.98", BETA2),
    "appearances": (EMBEDDING, APPEARANCES),
    "coupled-adam": COUPLED,
}
"""Overrides of configs/cures/mle.yaml; in a name, what has another β₂ than 0.98."""

INTERVENTIONS = f"common.user_dir={ROOT / 'scripts' / 'experiments' / 'interventions'}"
PROBES: Mapping[str, tuple[str, ...]] = {
    "frequent-0.999": (INTERVENTIONS, "optimizer._name=long_memory_of_frequent_rows"),
    "amsgrad": (INTERVENTIONS, "optimizer._name=amsgrad_of_w"),
    "balanced-pushes": (INTERVENTIONS, "criterion._name=balanced_pushes"),
}
"""The same, with optimizers and a criterion that are not in the package."""

LARGER = (
    "model.decoder_layers=4", "model.decoder_embed_dim=256", "model.decoder_input_dim=256",
    "model.decoder_output_dim=256", "model.decoder_ffn_embed_dim=1024", "optimization.lr=[0.003]",
)  # fmt: skip
LARGE_VOCABULARY: Mapping[str, tuple[str, ...]] = {
    "mle": (),
    "all-0.999": (BETA2,),
    "all-0.9999": ("optimizer.adam_betas='(0.9,0.9999)'",),
    "w-0.999": (EMBEDDING, "optimizer.embedding_beta2=0.999"),
    "appearances": (EMBEDDING, APPEARANCES),
    "bias-fixed-0.999": (*FIXED_BIAS, BETA2),
    "agg-0.999": (*AGG, "criterion.agg_window=2400", BETA2),
    "larger": LARGER,
    "larger-0.999": (*LARGER, BETA2),
}
"""The same; the larger model is trained with the first seed alone."""

GATED_HALF = ("criterion._name=agg", "criterion.agg_rare_fraction=0.5", "criterion.agg_window=1000")
ABSENT, EVERY_ROW = ((FREEZE, f"criterion.freeze_below={share}") for share in ("1e-9", "0.9"))
UNTIED = ("model.share_decoder_input_output_embed=false",)
RATES = {"-low": "0.001", "-high": "0.01", "": "0.003"}  # every name ends in the last one
AT_EACH_RATE = {
    "adam": (), "agg": GATED_HALF, "frozen-absent": ABSENT, "untied": UNTIED, "agg-untied": (*GATED_HALF, *UNTIED),
}  # fmt: skip
FINE_TUNING: Mapping[str, tuple[str, ...]] = {
    **{
        f"{name}{suffix}": (*own, f"optimization.lr=[{rate}]", f"lr_scheduler.end_learning_rate={float(rate) / 10:g}")
        for name, own in AT_EACH_RATE.items()
        for suffix, rate in RATES.items()
    },
    "frozen-embedding": EVERY_ROW,
    "adam-0.98": ("optimizer.adam_betas='(0.9,0.98)'",),
    "agg-alpha": ("criterion._name=agg", "criterion.agg_alpha=0.03", "criterion.agg_window=1000"),
    "agps": (  # a token of this rank occurs about 200 times in the new texts
        "criterion._name=agps", "criterion.agps_rare_rank=350", "criterion.agps_mu1=250", "criterion.agps_mu2=20",
    ),
    "appearances": (EMBEDDING, APPEARANCES),
    "slow-embedding": (INTERVENTIONS, "optimizer._name=slow_w"),
}  # fmt: skip
"""Overrides of configs/cures/mle.yaml with β₂ = 0.999 and a learning rate of 0.003; low and high: 0.001 and 0.01."""

WHOLE = {name: keys for name, keys in NEXT_TOKENS.items() if name not in ("group_perplexity", "within_perplexity")}
OBJECTIVES: Mapping[str, tuple[str, ...]] = {
    "mle": (),
    "freeze": (FREEZE,),
    **{f"freeze-{parts}": (FREEZE, f"criterion.freeze_parts={parts}") for parts in ("b", "c", "bc")},
    "agg": AGG,
    "agg-no-g1": (*AGG, "criterion.agg_gates=g2"),
    "agg-no-g2": (*AGG, "criterion.agg_gates=g1"),
    "agg-static": (*AGG, "criterion.agg_static_after_epoch=1"),
    "agps": (
        "criterion._name=agps", "criterion.agps_rare_rank=930", "criterion.agps_mu1=500", "criterion.agps_mu2=20",
    ),
    "cosreg": ("criterion._name=cosreg",),
    "ul": ("criterion._name=unlikelihood",),
    "ul-agg": (*AGG, "criterion.ul_alpha=1"),
    "agg-faded": (*AGG, "criterion.agg_gates=faded"),
    "agg-faded-0.6": FADED,
    "agg-0.1": ("criterion._name=agg", "criterion.agg_rare_fraction=0.1"),
}  # fmt: skip
"""Overrides of configs/demo/mle.yaml by the name of the model."""
SMALLER = (
    "model.decoder_embed_dim=64", "model.decoder_input_dim=64", "model.decoder_output_dim=64",
    "model.decoder_ffn_embed_dim=256",
)  # fmt: skip
F2_MODELS: Mapping[str, tuple[str, ...]] = {
    "mle": (),
    "f2": F2,  # MefMax finds 13 classes, of at most 18
    **{
        f"{assignment}-{classes}": (*F2, f"model.f2_assignment={assignment}", f"model.f2_classes={classes}")
        for assignment, numbers in (("equal-frequency", (4, 18)), ("equal-token", (4, 13)))
        for classes in numbers
    },
}

CHECKPOINTS, AVERAGED = 20, 5
"""Of a translation model, and of these the last ones, whose mean translates (Vaswani et al. 2017)."""


def _rows(models: Sequence[Model]) -> list[Method]:
    return [*(Method(model.name, model) for model in models), Method(HUMAN, models[0], human=True)]


def cures(*, data: Path | None = None, updates: int = 16320, vocabulary: int = 10000) -> list[Experiment]:
    """Every cure of degenerate embeddings, and what it costs; `data` as of the demo."""
    corpus, shared = wikitext_in_words(data, vocabulary), (f"optimization.max_update={updates}",)
    models = [Model(name, "cures/mle", corpus, (*shared, *own)) for name, own in CURES.items()]
    return [
        Experiment(
            "The cures of degenerate embeddings, same model, data and updates; test split",
            _rows(models),
            COMPARISON,
            note="calibrated: with one constant per group on the logits, fitted on the validation split. Word "
            "similarity and generated texts: `agg-fairseq word-similarity` and `agg-fairseq generate-lm`.",
            name="cures",
            wide=True,
            changes=True,
            report=True,
        ),
    ]


def second_moments(*, data: Path | None = None, updates: int = 4080, vocabulary: int = 10000) -> list[Experiment]:
    """Which second moments of Adam make embeddings degenerate; `data` as of the demo."""
    corpus, probed = wikitext_in_words(data, vocabulary), "Plain likelihood, with another memory of Adam"
    models, probes = (_short(corpus, updates, overrides) for overrides in (SECOND_MOMENTS, PROBES))
    ratio = Column.of("pushes/pulls rare", push_pull, "push_to_pull_measured", "rare")
    options = {"wide": True, "changes": True}
    return [
        Experiment(
            f"{probed} for some of the parameters; test split",
            _rows(models),
            [*COMPARISON, ratio],
            name="second-moments",
            **options,
        ),
        Experiment(f"{probed} or gates; test split", _rows([models[0], *probes]), COMPARISON, name="probes", **options),
    ]


def large_vocabulary(*, data: Path | None = None, updates: int = 4080, vocabulary: int = 40000) -> list[Experiment]:
    """The memory of Adam, and cures, where rare tokens appear once in a thousand updates; `data` as of the demo."""
    models = _short(wikitext_in_words(data, vocabulary), updates, LARGE_VOCABULARY, "dataset.max_tokens=512")
    return [
        Experiment(
            "All words, in updates of 512 tokens; test split",
            _rows([replace(model, every_seed=not model.name.startswith("larger")) for model in models]),
            COMPARISON,
            name="large-vocabulary",
            wide=True,
            changes=True,
        )
    ]


def _short(corpus: Corpus, updates: int, models: Mapping[str, tuple[str, ...]], *shared: str) -> list[Model]:
    """Models of configs/cures/mle.yaml, trained for fewer updates at a higher learning rate."""
    steps = f"optimization.max_update={updates}", "optimization.lr=[0.01]", "lr_scheduler.end_learning_rate=0.001"
    return [Model(name, "cures/mle", corpus, (*steps, *shared, *own)) for name, own in models.items()]


def fine_tuning(
    *, data: Path | None = None, updates: int = 6120, vocabulary: int = 8000, new_text: Sequence[Path] = ()
) -> list[Experiment]:
    """What fine-tuning on another text makes of the tokens that do not occur there; `data` as of the demo.

    The new text is three files, or none for the documentation of Python. It has 1,000 updates where the old one has
    6,120.
    """
    options = ("--tokenizer", "sentencepiece", "--vocabulary", str(vocabulary))
    old = replace(wikitext_in_words(data, vocabulary), name="wikitext2-sentencepiece", options=options)
    new = Corpus(
        "new-text", ("scripts.data.same_tokens",), "sentencepiece", options=(*map(str, new_text),), tokens_of=old
    )
    steps = f"optimization.max_update={updates}", "optimization.lr=[0.01]", "lr_scheduler.end_learning_rate=0.001"
    before = Model("before", "cures/mle", old, (BETA2, *steps))
    further = (
        f"optimization.max_update={max(1, round(updates / 6.12))}", "optimization.lr=[0.003]",
        "lr_scheduler.end_learning_rate=0.0003", BETA2,
    )  # fmt: skip
    models = [Model(name, "cures/mle", new, (*further, *own), start=before) for name, own in FINE_TUNING.items()]
    of_new, of_old = (partial(fine_tuned, before=before, new=new, scored=scored) for scored in (new, old))
    points = [
        [
            Column.of(f"{title}, {share:.0%}" if share else title, partial(of_text, share=share), "perplexity", "total")
            for title, of_text in (("new text", of_new), ("old text", of_old))
        ]
        for share in SHARES
    ]
    methods = [Method(model.name, model) for model in (before, *models)]
    labelled = {method.label: method for method in methods}
    plain = {name: labelled[f"adam{next(filter(name.endswith, RATES))}"] for name in labelled}
    lowest = partial(lowest_on_old, on_new=of_new, on_old=of_old, references=plain, allowed=1.01)
    columns = [
        *points[0],
        Column.of("absent", of_old, "perplexity", "absent"),
        Column.of("within absent", of_old, "within_perplexity", "absent"),
        Column.of("E/O absent", of_old, "expected_over_observed", "absent"),
        Column.of("moved", of_old, "moved", "absent"),
        *points[SHARES.index(0.4)],
        Column("old text at new + 1%", lowest, METRICS["perplexity"]),
    ]
    return [
        Experiment(
            "Fine-tuning on a new text, and what it does to tokens that do not occur there; test splits",
            methods,
            columns,
            [trade_off(points, {name: [name + suffix for suffix in RATES] for name in AT_EACH_RATE})],
            note="40%: with that share of the constants on the logits, one per group (100 occurrences or more in the "
            "new text, 1 to 99, none), that fit the validation split of the old text. New + 1%: with the share that "
            "lowers the old text's perplexity most, where that of the new text is at most 1% above that of "
            "adam with the same learning rate.",
            name="fine-tuning",
            wide=True,
        )
    ]


def _models(corpus: Corpus, updates: int, models: Mapping[str, tuple[str, ...]]) -> list[Model]:
    """Models of configs/demo/mle.yaml by their names and overrides."""
    shared = (
        f"optimization.max_update={updates}",
        f"checkpoint.save_interval_updates={max(1, updates // 10)}",  # an interrupted training goes on from there
        f"common.log_interval={min(updates, 10)}",
        f"criterion.embedding_stats_interval={min(updates, 10)}",
        "dataset.required_batch_size_multiple=8",  # fairseq's own, as in the tables of the documentation
    )
    return [Model(name, "demo/mle", corpus, (*shared, *overrides)) for name, overrides in models.items()]


def _comparison(title: str, models: Sequence[Model]) -> Experiment:
    """The table of eval-lm for several models, with pictures and a report."""
    return Experiment(
        title,
        _rows(models),
        titled(perplexity, WHOLE),
        [projection(), SINGULAR_VALUES, RARE_TOKENS],
        name="table",
        wide=True,
        report=True,
    )


def demo(*, data: Path | None = None, updates: int = 1000, vocabulary: int | None = None) -> list[Experiment]:
    """Plain likelihood, AGG, and plain likelihood with a longer memory of Adam, in updates of 512 tokens.

    `data` is a folder of the WikiText files, or a prepared one; None: the documentation of Python.
    """
    corpus = replace(DOCUMENTATION, options=("--vocabulary", str(vocabulary or 4000)))
    if data is not None:
        corpus = wikitext_in_words(data, vocabulary or 16000)
    gated = (*AGG, f"criterion.agg_window={max(1, updates * 3 // 25)}")
    cures = {"mle": (), "agg": gated, "mle-beta2-0.999": (BETA2,)}
    tokens = "dataset.max_tokens=512"
    models = _models(corpus, updates, {name: (tokens, *overrides) for name, overrides in cures.items()})
    where = "the documentation of Python" if data is None else data.name
    note = (
        "mle: Adam's β₂ is 0.98, as in many recipes of fairseq. It forgets a gradient after about 50 updates, before a "
        "rare token appears again: the embeddings degenerate. AGG prevents that, with the same total perplexity after "
        "calibration; β₂ = 0.999 prevents it, too, and lowers the total (docs/which-cure.md)."
    )
    return [replace(_comparison(f"The demo's model on {where}", models), columns=COMPARISON, changes=True, note=note)]


def objectives(*, data: Path | None = None, updates: int = 2200, vocabulary: int = 10000) -> list[Experiment]:
    """The objectives of `OBJECTIVES` on the same model; `data` as of the demo."""
    models = {name: (*SMALLER, *overrides) for name, overrides in OBJECTIVES.items()}
    corpus = wikitext_in_words(data, vocabulary)
    return [_comparison("The objectives, same model and updates", _models(corpus, updates, models))]


def f2_softmax(*, data: Path | None = None, updates: int = 2200, vocabulary: int = 40000) -> list[Experiment]:
    """The ordinary softmax beside the factorized output layer, perplexities and then texts; `data` as of the demo."""
    models = _models(wikitext_in_words(data, vocabulary), updates, F2_MODELS)
    mle, mefmax, *fixed = models
    methods = [
        Method("mle-top3", mle),
        Method("f2-top3", mefmax, decoding="joint"),
        *(Method(f"{model.name}-top3-decoupled", model, decoding="decoupled") for model in (mefmax, *fixed)),
        Method("mle-greedy", mle, greedy=True),
        Method("f2-greedy", mefmax, decoding="joint", greedy=True),
        Method("f2-greedy-decoupled", mefmax, decoding="decoupled", greedy=True),
        Method(HUMAN, mle, human=True),
    ]
    shares = [
        Column.of(f"{group} (%)", partial(texts, topk=3), "token_share", group)
        for group in ("frequent", "medium", "rare", "very rare")
    ]
    return [
        _comparison("The ordinary softmax and the factorized output layer (WikiText-2)", models),
        Experiment(
            "Continuations of the test split, drawn from the 3 most probable tokens, or greedy",
            methods,
            [*f2.text_columns(3), *shares],
            name="text-metrics",
            wide=True,
        ),
    ]


def multi30k(*, data: Path | None = None, updates: int = 1000, vocabulary: int = 6000) -> list[Experiment]:
    """The methods of the translation tables, AGG with a log-unigram bias, and F²-Softmax.

    `data` is a folder of {train,valid,test}.{en,de}, or a prepared one. With less than one update per checkpoint, the
    best checkpoint translates.
    """
    if data is None:
        raise UserError("found no --data; expected the folder of Multi30k, task 1")
    if (data / MANIFEST).is_file():
        manifest = read_json_object(data / MANIFEST, "the manifest of a prepared corpus")
        vocabulary = manifest.get("dictionary", vocabulary)
    corpus = replace(WMT14, options=("--tokenizer", "sentencepiece", "--vocabulary", str(vocabulary)))
    shared = (
        f"optimization.max_update={updates}",
        "lr_scheduler.warmup_updates=400",
        f"checkpoint.save_interval_updates={max(1, updates // CHECKPOINTS)}",
        f"checkpoint.keep_interval_updates={AVERAGED}",
    )
    # The window is 5% of the training. The rank is the same share of the vocabulary as 27,000 of WMT14's 40,624.
    gated = (*AGG, f"criterion.agg_window={max(1, updates // 20)}")
    partially_scaled = (
        "criterion._name=agps", f"criterion.agps_rare_rank={vocabulary * 2 // 3}", "criterion.agps_mu1=50",
        "criterion.agps_mu2=15",
    )  # fmt: skip
    # All options that a layer reads: fairseq-hydra-train knows no defaults of translation models.
    subset = "model.train_subset=${dataset.train_subset}"
    bias = ("model._name=transformer_unigram", "model.unigram_bias=learned", subset)
    factorized = (
        "model._name=transformer_f2", "criterion._name=f2_softmax", "model.f2_assignment=mefmax", "model.f2_classes=0",
        "model.f2_decoding=joint", subset, "model.save_dir=${checkpoint.save_dir}",
        "model.restore_file=${checkpoint.restore_file}",
    )  # fmt: skip
    overrides: Mapping[str, tuple[str, ...]] = {
        "mle": (),
        "cosreg": ("criterion._name=cosreg",),
        "agps": partially_scaled,
        "agg-0.3": gated,
        "bias-agg-0.3": (*bias, *gated),
        "f2": factorized,
    }
    averaged = AVERAGED if updates >= CHECKPOINTS else 0
    methods = []
    for name, own in overrides.items():
        options = {"averaged": averaged, "every_seed": name != "f2"}
        methods.append(Method(name, Model(name, "wmt14_en_de/mle", corpus, (*shared, *own), **options)))
    methods.append(replace(methods[-1], label="f2-greedy-class", decoding="greedy-class"))
    scores = partial(bleu, generate=("--beam", "5", "--batch-size", "64", "--remove-bpe", "sentencepiece"))
    return [
        Experiment(
            "Translation of the test set of Multi30k, English to German, beam 5",
            methods,
            [
                Column.of("sacreBLEU", scores, "sacrebleu"),
                Column.of("BP", scores, "sacrebleu_brevity_penalty"),
                Column.of("I(W)", isotropy, "isotropy", "total"),
                Column.of("IsoScore", isotropy, "isoscore", "total"),
            ],
            name="table",
        )
    ]


@dataclass(frozen=True)
class Entry:
    """One of our own experiments."""

    title: str  # in the list of all entries
    output: str  # default of --output
    build: Callable[..., list[Experiment]]  # of --data, --updates and --vocabulary


OURS: dict[str, Entry] = {
    "demo": Entry("plain likelihood, AGG, and plain likelihood with β₂ = 0.999, language models", "runs/demo", demo),
    "objectives": Entry(
        "AGG and its variants, freezing, AGPS, CosReg and unlikelihood, language models", "runs/objectives", objectives
    ),
    "f2": Entry("the ordinary softmax and the factorized output layer, with texts", "runs/f2-softmax", f2_softmax),
    "multi30k": Entry(
        "the objectives, AGG with a bias, and the factorized layer, translation models", "runs/multi30k", multi30k
    ),
    "cures": Entry("every cure of degenerate embeddings, and what it costs, language models", "runs/cures", cures),
    "second-moments": Entry(
        "which second moments of Adam make embeddings degenerate, language models",
        "runs/second-moments",
        second_moments,
    ),
    "large-vocabulary": Entry(
        "the memory of Adam where rare tokens appear once in a thousand updates, language models",
        "runs/large-vocabulary",
        large_vocabulary,
    ),
    "fine-tuning": Entry(
        "what fine-tuning does to the tokens that do not occur in the new text, language models",
        "runs/fine-tuning",
        fine_tuning,
    ),
}
"""Our own experiments, on small models, by the names that the command line takes."""
