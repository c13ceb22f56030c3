"""The same weights as llama.cpp wants them: one GGUF file, and its own packed forms of it.

`python -m tests.bench.cpu.gguf_file FOLDER` writes them beside the model's other files."""

import sys
from pathlib import Path

from tests.bench.cpu.shape import CONFIG, Format

_NAMES = {
    "attention_norm": "attn_norm",
    "mlp_norm": "ffn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.output": "attn_output",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
}
_ENDS = {"embedding": "token_embd", "norm": "output_norm", "output": "output"}


def gguf_path(folder: Path, format_: Format) -> Path:
    return folder / f"{format_}.gguf"


def write_gguf(folder: Path) -> None:
    import gguf
    import torch

    from tensor_llm.checkpoint import load_folder

    model = load_folder(folder).model
    path = gguf_path(folder, Format.BF16)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_block_count(CONFIG.layers)
    writer.add_context_length(CONFIG.context)
    writer.add_embedding_length(CONFIG.hidden)
    writer.add_feed_forward_length(CONFIG.mlp)
    writer.add_head_count(CONFIG.heads)
    writer.add_head_count_kv(CONFIG.kv_heads)
    writer.add_rope_dimension_count(CONFIG.head_size)
    writer.add_rope_freq_base(CONFIG.rope_theta)
    writer.add_layer_norm_rms_eps(CONFIG.norm_epsilon)
    writer.add_vocab_size(CONFIG.vocabulary)
    # there is nothing to tokenise
    writer.add_tokenizer_model("no_vocab")
    for name, parameter in model.named_parameters():
        weight = _in_their_order(name, parameter.detach())
        if weight.dim() == 1:
            writer.add_tensor(_their_name(name), weight.float().numpy())
            continue
        raw = weight.contiguous().view(torch.uint8).numpy()
        writer.add_tensor(_their_name(name), raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _their_name(name: str) -> str:
    part, _, leaf = name.rpartition(".")
    if not part.startswith("layers."):
        return f"{_ENDS[part]}.{leaf}"
    _, layer, within = part.split(".", 2)
    return f"blk.{layer}.{_NAMES[within]}.{leaf}"


def _in_their_order(name, weight):
    """llama.cpp turns neighbouring channels by one angle, transformers those half a head apart:
    queries' and keys' rows are put in that order."""
    heads = {"query": CONFIG.heads, "key": CONFIG.kv_heads}.get(name.split(".")[-2])
    if heads is None:
        return weight
    half = CONFIG.head_size // 2
    return weight.view(heads, 2, half, -1).transpose(1, 2).reshape(weight.shape)


def pack_gguf(folder: Path) -> None:
    """By llama.cpp itself, with its own choice for the head."""
    import llama_cpp

    from tests.bench.cpu.llama_side import be_quiet

    be_quiet()
    types = {
        Format.INT8: llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
        Format.INT4: llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    }
    source = str(gguf_path(folder, Format.BF16)).encode()
    for format_, type_ in types.items():
        settings = llama_cpp.llama_model_quantize_default_params()
        settings.ftype, settings.allow_requantize = type_, True
        to = str(gguf_path(folder, format_)).encode()
        if llama_cpp.llama_model_quantize(source, to, settings):
            raise RuntimeError(f"llama.cpp cannot pack its file as {format_}")


if __name__ == "__main__":
    write_gguf(Path(sys.argv[1]))
    pack_gguf(Path(sys.argv[1]))
