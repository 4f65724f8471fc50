"""Pictures of the problems with networks in docs/reference/gallery.md."""

from large_common import ROOT, make_method, show


def digit_parts(agents, seed=0):
    """Return training, validation and test rows of the embedded digits."""
    import diamond

    features, labels = diamond.data.digits().train
    parts = diamond.data.partition.iid(labels, agents, seed=seed)
    split = diamond.data.partition.split(parts, (0.4, 0.4, 0.2), seed=seed)
    return [[{"a": features[i], "b": labels[i]} for i in part] for part in split]


def pictures(options):
    """Draw a metric along the rounds, and x, of the three problems."""
    import matplotlib
    import numpy as np

    import diamond
    from diamond import gallery
    from diamond.records.plot_colors import OKABE_ITO

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    def draw_sources(axis, problem, run):
        bars = axis.bar(problem.names, problem.weights(run.x), color=OKABE_ITO[0])
        for bar, is_clean in zip(bars, problem.clean):
            bar.set_color(OKABE_ITO[0 if is_clean else 1])
        axis.set(title="softmax(x): the weight of every source")
        axis.tick_params(axis="x", labelrotation=20, labelsize=8)

    def draw_rows(axis, problem, run):
        weights = 1 / (1 + np.exp(-np.asarray(run.x).mean(0)))
        groups = [weights[~problem.wrong], weights[problem.wrong]]
        axis.hist(groups, bins=20, label=["right", "wrong"], color=OKABE_ITO[:2])
        axis.set(title="sigmoid(x) of rows with right and wrong labels")
        axis.legend(fontsize=8)

    def draw_agents(axis, problem, run):
        rows = [problem.rows["test"][agent] for agent in range(problem.agents)]
        names = [f"{agent}" for agent in range(problem.agents)]
        none = [{"a": 0 * layer["a"][0], "b": 0 * layer["b"][0]} for layer in run.y]
        adapters = lambda tree, i: [{k: v[i] for k, v in layer.items()} for layer in tree]
        error = lambda x, y, r: float(np.mean((problem.predict(x, y, r) - r["b"]) ** 2))
        zero = [{k: 0 * v[0] for k, v in layer.items()} for layer in run.x]
        frozen = [error(zero, none, r) for r in rows]
        adapted = [error(adapters(run.x, i), adapters(run.y, i), r) for i, r in enumerate(rows)]
        shared = [error(adapters(run.x, i), none, r) for i, r in enumerate(rows)]
        for k, (values, label) in enumerate(
            zip((frozen, shared, adapted), ("frozen", "with x", "with x and y"))
        ):
            places = np.arange(len(names)) + 0.27 * (k - 1)
            axis.bar(places, values, 0.27, label=label, color=OKABE_ITO[k])
        axis.set(title="squared error on test rows, by agent", xlabel="agent")
        axis.legend(fontsize=8)

    steps = {"alpha": 0.1, "beta": 0.05, "delta": 0.05, "batch": 16}
    cases = {
        "domain_weights": (
            lambda: gallery.domain_weights(),
            "clean_weight",
            "weight of all clean sources",
            draw_sources,
            300,
            None,
        ),
        "network_cleaning": (
            lambda: gallery.network_cleaning(*digit_parts(5)),
            "auc",
            "AUC of right against wrong rows",
            draw_rows,
            400,
            None,
        ),
        "personal_lora": (
            lambda: gallery.personal_lora(),
            "gain",
            "share of the removable error removed",
            draw_agents,
            1500,
            lambda: diamond.f2sa_fused(**steps),
        ),
    }
    folder = ROOT / "docs" / "results" / "gallery"
    for name in options.problems or cases:
        make, metric, title, draw, rounds, method = cases[name]
        problem = make()
        network = diamond.network.erdos_renyi(problem.agents, p=0.5, seed=0)
        algorithm = method() if method else make_method("solve", 16)
        rounds, every = options.rounds or rounds, max((options.rounds or rounds) // 20, 1)
        run = diamond.simulate(
            problem, network, algorithm, rounds, every=every, progress=False, on_evaluation=show
        )
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        axes[0].plot(run.history["round"], run.history[metric], color=OKABE_ITO[0])
        axes[0].set(xlabel="round", title=title)
        axes[0].grid(alpha=0.3)
        draw(axes[1], problem, run)
        figure.savefig(folder / f"{name}.png", dpi=90)
        plt.close(figure)
        print(folder / f"{name}.png", flush=True)
