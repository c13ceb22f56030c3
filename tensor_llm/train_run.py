"""A training job's model, tokenizer and trainer: begun afresh, begun on an existing model, or
gone on with from a checkpoint.

Knows nothing of slices, leases or where documents come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from noidle.errors import CheckpointError, InvalidJob
from noidle.jobs import Train
from noidle.snapshot import ModelInfo
from tensor_llm.checkpoint import load_model, load_state, save_model
from tensor_llm.config import ModelConfig
from tensor_llm.data import Corpus, split_documents
from tensor_llm.families.directory import read_directory
from tensor_llm.families.files import read_side_files
from tensor_llm.model import Decoder, new_decoder
from tensor_llm.store import CHECKPOINT_FILE, ModelStore, read_json, revision_name
from tensor_llm.tokenizer import Tokenizer
from tensor_llm.train_plan import TrainPlan
from tensor_llm.train_state import TrainState, last_of_unfinished
from tensor_llm.training import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRun:
    """Keep it between slices: opening one reads and tokenises the text again."""

    store: ModelStore
    name: str
    tokenizer: Tokenizer
    trainer: Trainer
    bytes_per_token: float
    # what goes with the model beside weights and tokenizer, by file name
    side_files: Mapping[str, bytes]

    @classmethod
    def open(
        cls,
        store: ModelStore,
        job: Train,
        documents: Sequence[str],
        *,
        seed: int,
        revision: str | None = None,
        device: torch.device | str = "cpu",
        autocast: torch.dtype | None = None,
        part_flop: float | None = None,
    ) -> "TrainRun":
        """Goes on from `revision`, a checkpoint of this very job; without one begins, on the
        model's current revision where there is one, else on random weights by the job's shape.
        `part_flop` bounds the work of a part of a step, as far as one sequence allows.

        Raises:
            InvalidJob: the text is too short, the sequence longer than the context, or the
                model's weights are packed.
            CheckpointError: files are malformed, or the checkpoint is not this job's.
        """
        train, held = split_documents(documents, job.held_out)
        base = _base(store, job, train, seed, revision)
        model, tokenizer = base.model, base.tokenizer
        state = _state(store, job.model, revision)
        # forward and backward pass take about 6 operations a parameter and token
        flop = 6 * model.config.parameters
        trainer = Trainer(
            model.to(device),
            Corpus.of(train, held, tokenizer),
            TrainPlan.of_job(job, seed=seed, config=model.config),
            base_step=base.step,
            state=state,
            autocast=autocast,
            part_tokens=None if part_flop is None else int(part_flop / flop),
        )
        return cls(
            store=store,
            name=job.model,
            tokenizer=tokenizer,
            trainer=trainer,
            bytes_per_token=tokenizer.bytes_per_token("".join(held)[:100_000]),
            side_files=base.side_files,
        )

    def save(self, token8: str, *, keep: int = 3) -> ModelInfo:
        """Writes a checkpoint, makes it the model's current revision, deletes old ones; but not
        what other runs that train this model go on from."""
        revision = revision_name(self.trainer.model_step, token8)
        info = save_model(
            self.store,
            self.name,
            revision,
            model=self.trainer.model,
            tokenizer=self.tokenizer,
            step=self.trainer.model_step,
            bytes_per_token=self.bytes_per_token,
            state=self.trainer.state(),
            side_files=self.side_files,
        )
        self.store.set_current(self.name, revision)
        self.store.prune(self.name, keep=keep, in_use=last_of_unfinished(self.store, self.name))
        return info


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What a job begins on."""

    model: Decoder
    tokenizer: Tokenizer
    # those its weights have seen
    step: int
    side_files: Mapping[str, bytes]


def _base(
    store: ModelStore, job: Train, train: Sequence[str], seed: int, revision: str | None
) -> _Base:
    if not revision and not store.current(job.model):
        tokenizer = Tokenizer.train(train, job.shape.vocabulary)
        config = ModelConfig.of_shape(job.shape, vocabulary=tokenizer.vocabulary)
        model = new_decoder(config, seed)
        return _Base(model=model, tokenizer=tokenizer, step=0, side_files={})
    folder = store.directory(job.model, revision)
    packed = read_directory(folder).format
    if packed is not None:
        allowed = f"a model with plain weights: those of this one are packed as {packed}"
        raise InvalidJob.of("model", job.model, allowed)
    loaded = load_model(store, job.model, folder.name)
    return _Base(
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        step=int(read_json(folder / CHECKPOINT_FILE)["step"]),
        side_files=read_side_files(folder),
    )


def _state(store: ModelStore, name: str, revision: str | None) -> TrainState | None:
    if revision is None:
        return None
    state = load_state(store, name, revision)
    if state is None:
        folder = store.directory(name, revision)
        raise CheckpointError.of(folder, "holds no training state to go on from")
    return state
