"""The mutants of `make mutants`: bugs to add to the source one at a time, by file, with the tests that should fail.

A bug is a pair: a text that the file contains exactly once, and its replacement. tests/test_mutants.py checks that
every pair still applies. If you change such a line of the source, update the pair here.
"""

from __future__ import annotations

from support.mutants import Mutant

Bugs = list[tuple[str, str]]

TABLE: list[tuple[str, str, Bugs]] = [
    # Training
    (
        "training/policies.py",
        "training/test_policies.py",
        [
            ("return losses[0] < losses[1]", "return losses[0] > losses[1]"),
            ("norms[at] > 2 * float(np.median(self.norms))", "norms[at] >= 0"),
            ("if self.waited < self.patience:", "if self.waited <= self.patience:"),
            ("self.best, self.waited = value, 0", "self.best = value"),
            ("(value > than if larger else value < than)", "(value >= than if larger else value < than)"),
            ("if np.isnan(value):", "if np.isinf(value):"),
            ("np.median(np.abs(np.asarray(self.losses) - middle))", "np.median(np.asarray(self.losses) - middle)"),
            ("        self.over = 0\n        self.losses.extend(losses)", "        self.losses.extend(losses)"),
            ('self.rollbacks = state["rollbacks"]', "self.rollbacks = 0"),
            ("self.rollbacks < self.most", "self.rollbacks <= self.most"),
            ("self.losses[-(self.epochs + 1) :]", "self.losses[-self.epochs :]"),
            ("if first - last >= self.share * abs(first) *", "if first - last >= self.share *"),
            ('list(state["losses"]), state["told"]', 'list(state["losses"]), False'),
            ("Found(place=len(steps.loss) - 1,", "Found(place=len(steps.loss),"),
        ],
    ),
    (
        "training/loop.py",
        "training/test_loop.py",
        [
            ("loss=sums.weighted / max(sums.rows, 1),", "loss=sums.loss / max(sums.steps, 1),"),
            ("[min(order.batch, left - (len(losses) - 1) * order.batch)]", "[order.batch]"),
            ("        position.in_epoch, position.units = Sums(), {}\n", "        position.units = {}\n"),
            ("        position.progress = Sums()\n", ""),
            ("states(self.policies), position=_copy(self.position)", "states(self.policies), position=self.position"),
            ("learning_rate=rate * self.good.state.rate_factor,", "learning_rate=rate,"),
            ("self.plan.rate_schedule(position.step - 1, self", "self.plan.rate_schedule(position.step % 1, self"),
            ("            emitted = self.emitted\n", "            pass\n"),
            ("policy.load({**policy.state(), **kept})", "policy.load(policy.state())"),
            ("factor = self.good.state.rate_factor * action.rate_factor", "factor = action.rate_factor"),
            ("value, event.validation_loss, position.step", "value, event.loss, position.step"),
            ("place = min(answer.place for answer in found)", "place = max(answer.place for answer in found)"),
            ("gradient_norm=sums.norm / max(sums.steps, 1)", "gradient_norm=sums.norm / max(sums.rows, 1)"),
        ],
    ),
    (
        "training/plan.py",
        "training/test_loop.py",
        [
            ("rows=rows[: self.seen], batch=self.batch", "rows=rows, batch=self.batch"),
            ("-(-len(self.rows[: self.seen]) // self.batch)", "len(self.rows[: self.seen]) // self.batch"),
        ],
    ),
    (
        "training/plan.py",
        "training/test_checkpoint_schedule.py",
        [
            ("every)).bit_length() - 1)", "every)).bit_length())"),
            ("step // (CHECKPOINTS * every)", "step // every"),
        ],
    ),
    (
        "training/loop.py",
        "training/test_checkpoint_schedule.py",
        [
            ("            self.position.unsaved_best = unsaved\n", "            pass\n"),
            ("        self._checkpoint_best()\n        if ended is None", "        if ended is None"),
        ],
    ),
    (
        "runs/config.py",
        "training/test_defaults.py",
        [
            ("math.sqrt(WIDE / max(widest, 1))", "WIDE / max(widest, 1)"),
            ("entry.width_in for entry in spec.entries", "entry.width_in for entry in spec.entries[:1]"),
        ],
    ),
    (
        "training/plan.py",
        "training/test_defaults.py",
        [
            ("min(MOST_EPOCHS, max(FEWEST_EPOCHS,", "max(MOST_EPOCHS, min(FEWEST_EPOCHS,"),
            ("return max(SMALLEST_BATCH, min(BATCH,", "return min(SMALLEST_BATCH, max(BATCH,"),
            ('            chosen["patience"] = max(', '            chosen["patience"] = min('),
            ("if config.patience is None and len(prepared.validation):", "if len(prepared.validation):"),
            ("if config.learning_rate is None:", "if config.epochs is None:"),
            (".gives_probabilities", ".classes"),
            ("min(len(prepared.train), config.epoch_rows or len(prepared.train))", "len(prepared.train)"),
        ],
    ),
    (
        "training/signals.py",
        "cli/test_train.py",
        [
            ('("SIGINT", "SIGTERM", "SIGHUP")', '("SIGINT", "SIGHUP")'),
        ],
    ),
    (
        "nn/schedules.py",
        "nn/test_schedules.py",
        [
            ("(step + 1) / (rising + 1) if step < rising", "step / rising if step < rising"),
            ("return math.floor(value + 1e-9)", "return math.floor(value)"),
            ("peak = max(_warmup_steps(warmup, steps) - 1, 0.0)", "peak = max(_warmup_steps(warmup, steps), 0.0)"),
            ("factor ** _whole(step / (every * steps))", "factor ** _whole((step + 1) / (every * steps))"),
            ("_fall(max(step / steps - flat, 0.0) / (1 - flat))", "_fall(max(step / steps - flat, 0.0))"),
            ("floor + (1 - floor) * (1 - step / steps)", "floor + (1 - step / steps)"),
            ("(2**cycles - 1) * (step / steps)", "2**cycles * (step / steps)"),
        ],
    ),
    # Metrics and calibration
    (
        "models/metrics.py",
        "models/test_metrics.py",
        [
            ("below = np.cumsum(level) - level / 2", "below = np.cumsum(level)"),
            ("classes = [1] if p.shape[1] == 2", "classes = [0] if p.shape[1] == 2"),
            ("float(np.mean(np.sqrt(squares)))", "float(np.sqrt(np.mean(squares)))"),
            ("spread = _mean((y - _mean(y, weight)) ** 2, weight)", "spread = _mean((y - y.mean()) ** 2, weight)"),
            ("right[truth == c].sum(), weight[truth == c].sum()", "right[truth == c].sum(), (truth == c).sum()"),
            ("p = np.clip(p, tiny, 1 - tiny)", "pass"),
            ("float(np.average(values, weights=weight))", "float(np.mean(values))"),
            ("np.abs(truth - given).mean(1)", "(truth - given).mean(1)"),
        ],
    ),
    (
        "nn/calibration.py",
        "nn/test_calibration.py",
        [
            ("int(np.ceil((n + 1) * coverage))", "int(np.ceil(n * coverage))"),
            ("-_rank(-errors[::-1], side)", "-_rank(-errors, side)"),
            ("_rank(np.sort(np.abs(errors), axis=0), coverage)", "_rank(errors, coverage)"),
            ("side = (1 + coverage) / 2", "side = coverage"),
            ("np.maximum(levels.min(2) - y, y - levels.max(2))", "np.minimum(levels.min(2) - y, y - levels.max(2))"),
            ('method="weibull"', 'method="linear"'),
            ("z) + doubt - moments(1.0)[0])", "z) - moments(1.0)[0])"),
            ("round(w.sum() ** 2 / (w**2).sum())", "round(w.sum())"),
            ("total = values[0].copy()", "total = values[0]"),
            ("float(expected @ weights) + fixed", "float(expected.sum()) + fixed"),
            ("z = [one / temperature for one in z]", "z = [one * temperature for one in z]"),
            ("together = np.clip(together, calibration.low, calibration.high)", "pass"),
            ("errors = y - np.clip(z, low, high)", "errors = y - z"),
            ("together = yes - no", "together = no - yes"),
        ],
    ),
    (
        "nn/calibration.py",
        "nn/test_ensemble_calibration.py",
        [
            ("less = 1 - 1 / len(self.members)", "less = 1 / len(self.members)"),
            ("self.members[order[j], rows]) / np.sqrt(2)", "self.members[order[j], rows])"),
            ("(len(places) / (len(places) + PRIOR_ROWS))", "1.0"),
            ("float((self.loss.rows(z, y) * self.weight).sum())", "float(self.loss.rows(z, y).sum())"),
            ("float((sure * self.weight).sum() / self.weight.sum())", "float(sure.mean())"),
            ("places = places[:: -(-len(places) // MAX_ROWS)]", "places = places[:MAX_ROWS]"),
        ],
    ),
    # Data
    (
        "data/splits.py",
        "data/test_splits.py",
        [
            ("round(n * check_share(share))", "int(n * check_share(share))"),
            ("take[c] += int(take[c] < sizes[c] - 1)", "take[c] += 1"),
            ("late = times >= cut", "late = times > cut"),
            ("cut = ordered[n - _count(n, share)]", "cut = ordered[n - _count(n, share) - 1]"),
            ("before[:-1] < _count(n, share)", "before[:-1] <= _count(n, share)"),
            ("np.lexsort((keys(len(sizes), seed), -sizes))", "np.lexsort((keys(len(sizes), seed), sizes))"),
            ("np.lexsort((random_keys, rank // k))", "np.lexsort((random_keys, rank))"),
        ],
    ),
    (
        "data/weights.py",
        "data/test_class_weights.py",
        [
            ("sizes.sum() / (len(classes) * np.where", "sizes.sum() / (np.where"),
            ("np.bincount(place, weights=weights, minlength", "np.bincount(place, minlength"),
            ("weights is None else weights * factor[place]", "weights is None else factor[place]"),
            ("0 <= float(value) < math.inf", "0 < float(value) < math.inf"),
        ],
    ),
    (
        "data/encoding_fit.py",
        "data/test_encoding.py",
        [
            ("C.numbers(table, name, kind)[train]  # (N, parts)", "C.numbers(table, name, kind)"),
            ("            values = values[:, train]\n", ""),
            ("np.quantile(values, (0.25, 0.75), axis=1)", "np.quantile(values, (0.1, 0.9), axis=1)"),
            ("np.where(high - low > 0, high - low, spread / 2)", "np.where(high - low > 0, high - low, spread)"),
        ],
    ),
    (
        "data/encoding_fit.py",
        "data/test_no_variation.py",
        [
            ("                scale[place] = 1.0\n", "                pass\n"),
            ('why, family = "", "empty" if kind == "categorical" else family', 'why = ""'),
        ],
    ),
    ("spec/initialization.py", "data/test_no_variation.py", [("np.where(alone > 0, alone, 1.0)", "1.0")]),
    (
        "models/members.py",
        "data/test_no_variation.py",
        [("if not np.isfinite(found).all():", "if np.isinf(found).all():")],
    ),
    (
        "data/training_data.py",
        "data/test_type_inference.py",
        [
            ("if len(C.vocabulary(text)) == len(classes):", "if len(classes):"),
            ("        table, found = _labels_as_written(table, found, config.task)\n", "        pass\n"),
        ],
    ),
    (
        "data/preprocessing.py",
        "data/test_encoding.py",
        [
            ("np.where(np.isnan(values), self.fill, values)", "np.where(np.isnan(values), 0.0, values)"),
            ("values / np.sqrt(1 + (values / 3) ** 2)", "values / np.sqrt(1 + values**2)"),
        ],
    ),
    (
        "data/encoding.py",
        "data/test_encoding.py",
        [
            ("V:] = nothing[:, with_indicator]", "V:] = ~nothing[:, with_indicator]"),
        ],
    ),
    (
        "data/targets.py",
        "data/test_targets.py",
        [
            ("np.concatenate([1 - p, p], 1)", "np.concatenate([p, 1 - p], 1)"),
            ("y = target_numbers(table, name)[train]", "y = target_numbers(table, name)"),
        ],
    ),
    (
        "data/augmentation.py",
        "data/test_augmentation.py",
        [
            ("(high - low + 1))).astype", "(high - low))).astype"),
            ("share = np.maximum(share, 1 - share)[:, None]", "share = share[:, None]"),
            ("batch.x.dtype.type(scene.background)", "batch.x.dtype.type(0)"),
            ("other = scene.train[np.minimum(", "other = np.arange(len(data.x))[np.minimum("),
        ],
    ),
    # Runs
    (
        "runs/checkpoints.py",
        "runs/test_run_folder.py runs/test_damaged_checkpoints.py",
        [
            ("[-KEEP:]", "[-1:]"),
            ("place for place in places if place.step <= step)", "place for place in places)"),
            ('kind="checkpoint", sha256=sha256', 'kind="checkpoint"'),
            ("for place in reversed(candidates):", "for place in candidates:"),
            ("(at is None or place.step <= at))\n            if", "(at is None or place.step < at))\n            if"),
        ],
    ),
    (
        "runs/folder.py",
        "runs/test_run_folder.py runs/test_crash_safety.py",
        [
            ("        log.sync()\n", ""),
            ("return max(taken, default=0) + 1", "return len(taken) + 1"),
            ("enumerate(lines[:-1], start=1)", "enumerate(lines[:-1])"),
            ("for number, line in enumerate(lines[:-1]", "for number, line in enumerate(lines"),
        ],
    ),
    (
        "runs/checkpoints.py",
        "runs/test_symlinks.py::test_resuming_a_run_with_the_checkpoints_of_another",
        [('pop("run", self.run) != self.run and self.run:', 'pop("run", self.run) is None:')],
    ),
    ("runs/folder.py", "runs/test_run_folder.py", [("fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH | fcntl.LOCK_NB")]),
    (
        "core/atomic_files.py",
        "core/test_atomic_files.py",
        [
            ('os.fsync(file)\n                point("write.close")', 'point("write.close")'),
            ("return start + last + 1", "return start + last"),
            ("data = data[taken:]", "return"),
        ],
    ),
    (
        "core/atomic_files.py",
        "core/test_atomic_files.py runs/test_symlinks.py",
        [
            ("flags | _NO_FOLLOW | _FLAGS", "flags | _FLAGS"),
            ("_FOLDER | os.O_NOFOLLOW, dir_fd=outer", "_FOLDER, dir_fd=outer"),
            ("about.st_nlink > 1", "about.st_nlink > 2"),
        ],
    ),
    (
        "data/arrow_files.py",
        "data/test_hostile_files.py",
        [
            ("lengths.take(column.indices)", "lengths"),
            ("total += size if stated < 0 else stated", "total += size"),
            ("if kind == _DICTIONARY:", "if kind == -1:"),
        ],
    ),
    ("core/canonical_json.py", "runs/test_events.py", [("else str(value)", "else str(abs(value))")]),
    (
        "runs/events.py",
        "runs/test_events.py",
        [
            ("kept = kept[: event.kept]", "kept = kept[: event.kept + 1]"),
            (" and not isinstance(value, bool):", ":"),
        ],
    ),
    # Reports
    (
        "pages/report/quality.py",
        "pages/test_report_baseline.py pages/test_report_parts.py pages/test_report.py",
        [
            ("betaincinv(right + 1, n - right, 1 - TAIL)", "betaincinv(right, n - right + 1, 1 - TAIL)"),
            ("TAIL = 0.025", "TAIL = 0.05"),
            ("return truth.mean(0)", "return np.median(truth, axis=0)"),
            ("np.bincount(truth, minlength=predicted.shape[1]) / len(truth)", "predicted.mean(0)"),
            ("math.sqrt(MOST_DRAWN / n)", "1.0"),
            ("np.bincount(places, minlength=n) * weights", "np.bincount(places, minlength=n)"),
            ("np.bincount(truth * n + predicted.argmax(1),", "np.bincount(predicted.argmax(1) * n + truth,"),
            ('"misses": yes & ~pred, "false_alarms": ~yes', '"misses": ~yes & pred, "false_alarms": ~yes'),
            ("np.abs(gap).sum() / len(p)", "abs(gap.sum()) / len(p)"),
            ("np.quantile(draws, 0.95)", "np.quantile(draws, 0.5)"),
            ("truth[:, t] <= predicted[:, t, k]", "truth[:, t] >= predicted[:, t, k]"),
        ],
    ),
    (
        "pages/report/verdict.py",
        "pages/test_report_verdict.py pages/test_report_baseline.py",
        [
            ("return 1 - (value / base) ** 2", "return 1 - value / base"),
            (
                "edge, reached = skill(entry, entry[worse]), skill(entry, most)",
                "edge, reached = skill(entry, most), skill(entry, entry[worse])",
            ),
        ],
    ),
    (
        "models/importance.py",
        "pages/test_report_parts.py pages/test_report.py",
        [
            ("base - value if higher else value - base", "value - base if higher else base - value"),
            ("x[block, numbers] = given[order][:, numbers]", "x[block, numbers[:1]] = given[order][:, numbers[:1]]"),
        ],
    ),
    (
        "pages/server.py",
        "pages/test_server.py",
        [
            (
                'hosts, origins = headers.getlist("host"), headers.getlist("origin")',
                'hosts, origins = headers.getlist("host"), headers.getlist("origin") * (request.method != "HEAD")',
            ),
            ("if not right or self._used:", "if not right:"),
            ('samesite="strict"', 'samesite="lax"'),
            ("httponly=True", "httponly=False"),
            ('("same-origin", "none") for site', '("same-origin", "same-site", "none") for site'),
            ('"X-Frame-Options": "DENY"', '"X-Frame-Options": "SAMEORIGIN"'),
            ("        self.streams -= 1\n", "        pass\n"),
            (
                "self.streams, self.listened = self.streams + 1, self",
                "self.streams, self.listened = self.streams, self",
            ),
        ],
    ),
]

MUTANTS = [Mutant(file, old, new, tests) for file, tests, bugs in TABLE for old, new in bugs]
