"""The cases of bench/engine.ts on TRL: whole GRPO steps of GRPOTrainer with Hugging Face `generate`, one JSON line per case.

Needs `pip install trl==1.13.0 torch transformers requests`. Usage: python trl_engine.py [size ...] [--threads 1] [--seconds 12]
Same shapes, prompt, group, forced length, temperature and loss (dapo, no KL) as bench/engine.ts, which can run it between its own cases
(`--rival PYTHON`); float32; no vLLM, no checkpointing of activations. The clock: CPU seconds of the process and wall seconds of whole
steps; what is not inside `generate` (rewards, loss, backward, optimizer, the trainer's own work) is the update.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

# hidden, layers, vocabulary, completion, batch; as bench/engine.ts
SIZES = {
    "S": (64, 2, 331, 32, 8),
    "M": (128, 4, 331, 64, 16),
    "M-vocab": (128, 4, 8192, 64, 16),
    "L": (256, 6, 331, 128, 16),
}
PROMPT = 35
GROUP = 8
WARM_UP = 3


def measure(size: str, threads: int, seconds: float) -> dict:
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    import tempfile

    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    import transformers
    import trl
    from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    hidden, layers, vocabulary, completion, batch = SIZES[size]
    words = {"<pad>": 0, "<eos>": 1} | {f"w{i}": i for i in range(2, vocabulary)}
    plain = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>")
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=3 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )
    prompts = [" ".join(f"w{2 + (row * 7 + i * 3) % (vocabulary - 2)}" for i in range(PROMPT)) for row in range(64)]

    generating: list[tuple[float, float]] = []
    plain_generate = model.generate

    def timed_generate(*args, **kwargs):
        wall, cpu = time.perf_counter(), time.process_time()
        result = plain_generate(*args, **kwargs)
        generating.append((time.perf_counter() - wall, time.process_time() - cpu))
        return result

    model.generate = timed_generate
    steps: list[tuple[float, float]] = []

    class Clock(TrainerCallback):
        began = time.perf_counter()

        def on_step_begin(self, args, state, control, **kwargs):
            if not steps:
                Clock.began = time.perf_counter()

        def on_step_end(self, args, state, control, **kwargs):
            steps.append((time.perf_counter(), time.process_time()))
            enough = time.perf_counter() - Clock.began > seconds and len(steps) >= WARM_UP + 4
            control.should_training_stop = enough

    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [float(hash(text) % 7) for text in completions],
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        callbacks=[Clock()],
        args=GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=batch,
            num_generations=GROUP,
            max_completion_length=completion,
            generation_kwargs={"min_new_tokens": completion},
            temperature=1.0,
            top_k=0,
            beta=0.0,
            gradient_checkpointing=False,
            max_steps=100_000,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            learning_rate=1e-6,
        ),
    )
    # it would print to standard output
    trainer.remove_callback(PrinterCallback)
    trainer.train()

    # the clock's marks stand between steps, so what is measured is whole steps with everything that TRL does in them
    whole = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(steps[WARM_UP - 1 :], steps[WARM_UP:])]
    sampling = generating[WARM_UP : WARM_UP + len(whole)]
    update = [(w[0] - s[0], w[1] - s[1]) for w, s in zip(whole, sampling)]
    sampled = batch * completion
    total = batch * (PROMPT + completion)
    return {
        "bench": "trl-engine",
        "versions": f"trl {trl.__version__}, torch {torch.__version__}, transformers {transformers.__version__}",
        "size": size,
        "threads": threads,
        "parameters": sum(p.numel() for p in model.parameters()),
        "repetitions": len(whole),
        "sampling": describe(sampling, sampled),
        "update": describe(update, total),
        "step": describe(whole, total),
        "peakMegabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def describe(times: list[tuple[float, float]], tokens: int) -> dict:
    wall, cpu = [w for w, _ in times], [c for _, c in times]
    return {
        "tokensPerSecond": round(tokens / statistics.median(wall)),
        "tokensPerCpuSecond": round(tokens / statistics.median(cpu)),
        "seconds": spread(wall),
        "cpuSeconds": spread(cpu),
    }


def spread(values: list[float]) -> dict:
    return {
        "min": round(min(values), 4),
        "median": round(statistics.median(values), 4),
        "max": round(max(values), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", default=list(SIZES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--case", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.sizes[0], options.threads, options.seconds)), flush=True)
        return
    # a process for each case, so that its peak memory is its own
    for size in options.sizes:
        words = [size, "--threads", str(options.threads), "--seconds", str(options.seconds), "--case"]
        subprocess.run([sys.executable, __file__, *words], check=True)


main()
