"""diamond's methods for one agent as a solver of benchopt's benchmark_bilevel."""

from typing import ClassVar

from benchmark_utils.diamond_adapter import Rounds, method, problem
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion

PATIENCE = 12_800  # evaluations without progress, as the other solvers there


class Solver(BaseSolver):
    """`method` is any that `diamond list algorithms` has for personal lower levels.

    `step_size` None: the method chooses its steps, from what it finds before the clock starts.
    """

    name = "diamond"
    requirements: ClassVar = ["pip::diamond"]
    stopping_criterion = SufficientProgressCriterion(patience=PATIENCE, strategy="callback")
    parameters: ClassVar = {
        "method": ["diamond", "soba", "sustain", "stocbio", "saba"],
        "batch_size": [64],
        "step_size": [None],
        "outer_ratio": [1.0],
        "eval_freq": [128],
        "random_state": [1],
    }

    @staticmethod
    def get_next(stop_val):
        return stop_val + 1

    def set_objective(
        self,
        f_inner,
        f_outer,
        n_inner_samples,
        n_outer_samples,
        inner_var0,
        outer_var0,
        f_inner_fb=None,
        f_outer_fb=None,
    ):
        batch = self.batch_size
        if batch == "full":
            batch = max(n_inner_samples, n_outer_samples)
        counts = n_inner_samples, n_outer_samples
        self.problem_to_solve = problem(f_inner, f_outer, *counts, inner_var0, outer_var0)
        self.algorithm = method(self.method, batch, self.step_size, self.outer_ratio)
        self.rounds = self._begun()

    def _begun(self):
        """A run at its start: compiled, its steps found."""
        return Rounds(
            self.problem_to_solve, self.algorithm, self.random_state, self.step_size is None
        )

    def run(self, callback):
        if self.rounds.run.t > 0:
            self.rounds = self._begun()
        while callback():
            self.rounds.advance(self.eval_freq)

    def get_result(self):
        inner, outer = self.rounds.variables
        return {"inner_var": inner, "outer_var": outer}
