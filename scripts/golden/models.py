"""Writes test/golden/models: tiny random models of each family, and an adapter, with the logits that transformers and PEFT compute.

    pip install torch transformers peft
    python scripts/golden/models.py test/golden/models

Run it again only to change the fixtures: another version of torch draws other weights.
"""

import json
import sys
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

OUT = Path(sys.argv[1])
SIZES = dict(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def loud(model):
    """Weights large enough that a mistake anywhere shows in the logits."""
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            spread = 0.6 * torch.randn_like(parameter)
            parameter.copy_(1 + 0.3 * spread if "norm" in name else 0.5 * spread)
    return model


def expect(directory, model):
    ids = torch.randint(0, 64, (2, 24))
    with torch.no_grad():
        logits = model.float().eval()(ids).logits
    save_file({"logits": logits.contiguous()}, directory / "expected.safetensors")
    (directory / "expected.json").write_text(json.dumps({"input_ids": ids.tolist()}) + "\n")


def write(name, model, dtype=torch.float32, edit=None, **save):
    torch.manual_seed(sum(map(ord, name)))
    directory = OUT / name
    loud(model).to(dtype).save_pretrained(directory, **save)
    if edit:
        config = json.loads((directory / "config.json").read_text())
        edit(config)
        (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    back = type(model).from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    expect(directory, back)
    return back


def old_rope(config):
    """The keys that transformers wrote before version 5."""
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    config["rope_scaling"] = scaling
    config["torch_dtype"] = config.pop("dtype")


def main():
    write("qwen2", Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)))
    write("qwen3-bfloat16-sharded", Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=10, tie_word_embeddings=False,
          rope_parameters=dict(rope_type="default", rope_theta=1000.0))), torch.bfloat16, max_shard_size="4KB")
    llama = LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=8, tie_word_embeddings=True,
                                         rope_parameters=dict(LLAMA3, rope_theta=500.0)))
    base = write("llama3-float16", llama, torch.float16, old_rope)
    write("llama-biases", LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)))

    torch.manual_seed(5)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=3, lora_alpha=6, target_modules=ALL, lora_dropout=0.1,
                                                        init_lora_weights=False, task_type="CAUSAL_LM"))
    directory = OUT / "llama3-adapter"
    adapted.save_pretrained(directory)
    (directory / "README.md").unlink(missing_ok=True)
    config = json.loads((directory / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "../llama3-float16"
    (directory / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    expect(directory, adapted)
    (OUT / "README.md").write_text(f"""# Tiny models of each family, and what transformers computes with them

Written by `scripts/golden/models.py` with transformers {transformers.__version__}, PEFT {peft.__version__} and torch {torch.__version__} (CPU, float32, eager attention).
Random weights, 2 layers, hidden 16, vocabulary 64. In each folder `expected.json` has `input_ids` (2 x 24) and
`expected.safetensors` the `logits` (2 x 24 x 64). Tolerance: 1e-5 absolute.

| folder | what is in it |
|---|---|
| `qwen2` | biases on q, k and v; tied head; float32 |
| `qwen3-bfloat16-sharded` | norms of q and k; heads of 10, so that 4 heads are wider than the hidden state; own head; bfloat16 in shards; `rope_parameters` |
| `llama3-float16` | no biases; Llama 3 rope scaling at positions beyond the original context; float16; the older keys `rope_theta`, `rope_scaling`, `torch_dtype` |
| `llama-biases` | `attention_bias` and `mlp_bias` |
| `llama3-adapter` | a LoRA adapter of rank 3 on all seven projections of `llama3-float16`, with dropout that acts in training only |
""")


main()
