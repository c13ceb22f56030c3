"""noidle model: what lies in the store. Owns the options and what is written; a cluster is needed
by none of these verbs, but one that is up on this storage is told."""

from pathlib import Path
from typing import Annotated

import typer

from noidle.errors import ClusterUnavailable, ConfigError
from ops.commands import output
from ops.commands.options import Data, Json
from ops.data_dir import DataDir
from ops.models.adding import Added, take_in
from ops.models.card import full_card, stored_cards
from ops.models.memory import count_memory, memory_fields, memory_table
from ops.models.naming import model_name
from ops.models.neighbours import neighbours
from ops.models.progress import progress
from ops.models.sample import sample_text
from ops.models.tables import card_table, count, full_card_table, size
from ops.run.opening import WeightType
from ops.run.whereabouts import find_model
from tensor_llm.store import ModelStore
from workers.settings import Settings, load_settings

model = typer.Typer(
    no_args_is_help=True,
    help="Take in models as people have them; list, show, remove and export them.",
)

Source = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A folder with config.json, *.safetensors and tokenizer.json."
    ),
]
Name = Annotated[
    str | None, typer.Option(help="What jobs will call it; default the folder's name.")
]
Sample = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Where packed: measure perplexity on it; default noidle's papers."
    ),
]
Format = Annotated[
    WeightType | None,
    typer.Option("--format", metavar="int8|int4", help="Pack weights. Default: as they are."),
]
Named = Annotated[str, typer.Argument(metavar="NAME", help="A model of `noidle model list`.")]
Which = Annotated[
    str, typer.Argument(metavar="NAME_OR_PATH", help="A model of `noidle model list`, or a folder.")
]


@model.command()
def add(
    path: Source,
    name: Name = None,
    packing: Format = None,
    text: Sample = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Copy a model into the store, whole or packed, for jobs to name.

    The folder is as Hugging Face users have it: Llama, Mistral, SmolLM2, Qwen2 or Qwen3. A cluster
    that is up on this host can use it at once.
    """
    if packing is not None and not packing.packed:
        raise ConfigError.of("--format", packing.value, "int8 or int4")
    folder = path.expanduser()
    if not folder.is_dir():
        raise ConfigError.of("PATH", str(path), "a folder that exists")
    name = model_name(name, folder)
    # what is wrong with the text should be said before the long work
    sample = sample_text(text)
    settings = load_settings(data_dir=data)
    DataDir(root=settings.data_dir).create()
    store = ModelStore(settings.data_dir)
    with progress(f"adding {name}") as told:
        added = take_in(
            store,
            folder,
            name,
            packing=None if packing is None else packing.value,
            text=sample,
            told=told,
        )
    known = _announce(settings, store, added)
    if json:
        output.as_json({**added.fields(), "cluster": known})
    else:
        _tell(added, known=known)


@model.command(name="list")
def list_models(data: Data = None, json: Json = False) -> None:
    """List the models in the store."""
    cards = stored_cards(_store(data))
    if json:
        output.as_json([card.model_dump(mode="json", exclude_none=True) for card in cards])
    elif cards:
        output.draw(card_table(cards))
    else:
        output.line("no models; `noidle model add PATH` takes one in, a train job makes one")


@model.command()
def show(
    which: Which,
    memory: Annotated[
        bool, typer.Option("--memory", help="Where every byte lies once it is loaded.")
    ] = False,
    kv_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of keys and values; default the whole context."),
    ] = None,
    dtype: Annotated[
        WeightType | None, typer.Option(help="As for `noidle run`; default as stored.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Where it is loaded.")] = "cpu",
    host_layers: Annotated[
        int | None,
        typer.Option(min=0, help="Layers that stay on the host, as the hybrid engine splits."),
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show one model, and with --memory where every byte of it would lie."""
    store = _store(data)
    where = find_model(which, store_root(data), option="NAME_OR_PATH")
    kept = tuple(store.revisions(which)) if where.revision else ()
    card = full_card(where.name, where.folder, where.revision, kept)
    report = None
    if memory:
        assert card.context is not None
        report = count_memory(
            where.folder,
            layers=card.config["layers"],
            kv_tokens=kv_tokens or card.context,
            dtype=dtype,
            device=device,
            host_layers=host_layers,
        )
    if json:
        fields = card.model_dump(mode="json", exclude_none=True)
        output.as_json(fields if report is None else {**fields, "memory": memory_fields(report)})
        return
    output.draw(full_card_table(card))
    if report is not None:
        output.line(f"\nwith {kv_tokens or card.context:,} tokens of keys and values:")
        output.draw(memory_table(report))


@model.command()
def remove(
    name: Named,
    force: Annotated[
        bool, typer.Option("--force", help="Although jobs that name it wait or run.")
    ] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Delete a model with all its revisions.

    Refused while jobs that name it wait or run in a cluster on this storage. A pool that has it in
    memory goes on with what it runs.
    """
    settings = load_settings(data_dir=data)
    store = ModelStore(settings.data_dir)
    # says which models there are, where there is no such one
    store.directory(name)
    try:
        with neighbours(settings, store.storage_id()) as near:
            if near is not None and not force:
                near.refuse_if_needed(name)
            freed = _delete(store, name)
            if near is not None:
                near.forget(name)
    except ClusterUnavailable as error:
        if not force:
            raise ClusterUnavailable(
                f"{error}; nobody can tell who needs {name}: --force removes it in any case"
            ) from None
        freed = _delete(store, name)
    if json:
        output.as_json({"name": name, "freed_bytes": freed})
    else:
        output.line(f"removed {name}: {size(freed)} freed")


@model.command()
def export(
    which: Which,
    to: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    data: Data = None,
    json: Json = False,
) -> None:
    """Write a model as a folder that transformers loads; packed weights become bfloat16."""
    where = find_model(which, store_root(data), option="NAME_OR_PATH")
    from tensor_llm.families import export as write

    target = to.expanduser()
    with progress(f"exporting {where.name}") as told:
        write(where.folder, target, progress=told)
    written = {file.name: file.stat().st_size for file in sorted(target.iterdir())}
    if json:
        output.as_json({"name": where.name, "path": str(target.resolve()), "files": written})
    else:
        output.line(
            f"wrote {where.name} to {to}: {', '.join(written)}; {size(sum(written.values()))}"
        )


def store_root(data: Path | None) -> Path:
    return load_settings(data_dir=data).data_dir


def _store(data: Path | None) -> ModelStore:
    return ModelStore(store_root(data))


def _announce(settings: Settings, store: ModelStore, added: Added) -> bool:
    """Whether a cluster was told; one that cannot be reached finds the model by itself."""
    try:
        with neighbours(settings, store.storage_id()) as near:
            if near is None:
                return False
            near.tell(added.info)
            return True
    except ClusterUnavailable:
        return False


def _tell(added: Added, *, known: bool) -> None:
    card = added.card
    output.line(
        f"added {card.name} ({card.revision}): {card.family}, {count(card.parameters)} parameters, "
        f"context {card.context:,}"
    )
    packed = "" if added.fidelity is None else f", packed as {card.format}"
    output.line(f"  read {size(added.read_bytes)}, stored {size(card.disk_bytes)}{packed}")
    if added.fidelity is not None:
        fidelity = added.fidelity
        output.line(
            f"  perplexity {fidelity.before:.3f} before, {fidelity.after:.3f} after packing "
            f"({fidelity.change:+.2%} over {fidelity.tokens:,} tokens)"
        )
    output.line(f"  working set {size(added.before_bytes)} before, {size(added.after_bytes)} after")
    if known:
        output.line("  the cluster on this storage can use it now")


def _delete(store: ModelStore, name: str) -> int:
    folder = store.directory(name).parent
    size_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    store.remove(name)
    return size_bytes
