"""Makes a folder for `npm run golden -- DIR` with TRL: documents how test/golden was made; nothing else needs Python.

    pip install trl==1.13.0 torch transformers==5.18.0
    python scripts/golden/generate.py --model test/golden/trl-grpo/tiny-qwen2 --out /tmp/golden --seed 3 \
        --run '{"loss_type": "dr_grpo", "beta": 0.04}' --run '{"loss_type": "cispo", "epsilon_high": 5.0}'

Rollouts are random tokens with holes in their action mask, drawn from the seed; TRL trains on them through `rollout_func`, which
stands where its sampler would. What a run does not set is TRL's default, or stands in SETTINGS below. After each run the weights
are written unless --no-weights is given.
"""

import argparse
import json
import os
import random
import shutil
import tempfile
from pathlib import Path

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from datasets import Dataset
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

GROUP_SIZE = 4
GROUPS = 2
STEPS = 6
LENGTH = 16
SETTINGS = {
    "importance_sampling_level": "token",
    "beta": 0.0,
    "use_bias_correction_kl": True,
    "epsilon": 0.2,
    "learning_rate": 1e-3,
    "weight_decay": 0.1,
    "max_grad_norm": 1.0,
    "num_generations": GROUP_SIZE,
    "num_iterations": 2,
    "max_completion_length": LENGTH,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0,
}


def draw_rollouts(seed, vocabulary):
    """Batches of groups; the first group of the second batch has equal rewards. A hole is what a tool would have said."""
    dice = random.Random(seed)
    token = lambda: dice.randrange(4, vocabulary)
    batches = []
    for batch in range(STEPS):
        rows = []
        for group in range(GROUPS):
            prompt = [token() for _ in range(4 + batch + group)]
            for _ in range(GROUP_SIZE):
                length = dice.randint(3, LENGTH - 5)
                mask = [1] * length
                if length > 6:
                    mask[3:5] = [0, 0]
                reward = 1.0 if (batch, group) == (1, 0) else dice.choice([0.0, 0.5, 1.0])
                completion = [token() for _ in range(length)]
                rows.append(
                    {"prompt_ids": prompt, "completion_ids": completion, "action_mask": mask, "group": group, "reward": reward}
                )
        batches.append(rows)
    return batches


def train(model_directory, batches, settings):
    """One run of TRL: the exact loss, gradient norm, learning rate and KL of each optimizer step, and the trained model."""
    calls = iter(batches)

    def rollout(prompts, trainer):
        rows = next(calls)
        return {
            "prompt_ids": [row["prompt_ids"] for row in rows],
            "completion_ids": [row["completion_ids"] for row in rows],
            "logprobs": None,
            "env_mask": [row["action_mask"] for row in rows],
            "score": [row["reward"] for row in rows],
        }

    losses = []

    class Recorder(GRPOTrainer):
        def training_step(self, *inputs, **keywords):
            loss = super().training_step(*inputs, **keywords)
            losses.append({"loss": loss.item(), "kl": self._metrics["train"].get("kl", [None])[-1]})
            return loss

    with tempfile.TemporaryDirectory() as directory:
        config = GRPOConfig(
            output_dir=directory,
            per_device_train_batch_size=GROUP_SIZE * GROUPS,
            gradient_accumulation_steps=1,
            max_steps=STEPS,
            logging_steps=1,
            bf16=False,
            gradient_checkpointing=False,
            shuffle_dataset=False,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            **settings,
        )
        model = AutoModelForCausalLM.from_pretrained(model_directory, dtype=torch.float32)
        trainer = Recorder(
            model=model,
            reward_funcs=lambda score, **rest: score,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": "-"} for _ in range(GROUPS * STEPS)]),
            processing_class=AutoTokenizer.from_pretrained(model_directory),
            rollout_func=rollout,
        )
        trainer.train()
        logged = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    steps = []
    for recorded, entry in zip(losses, logged, strict=True):
        step = {"loss": recorded["loss"], "grad_norm": entry["grad_norm"], "learning_rate": entry["learning_rate"]}
        if recorded["kl"] is not None:
            step["kl"] = recorded["kl"]
        steps.append(step)
    return steps, model


def name_of(settings):
    """dapo-token-beta0.04, and whatever else differs from SETTINGS."""
    rest = {**SETTINGS, **settings}
    name = f"{rest.pop('loss_type')}-{rest.pop('importance_sampling_level')}-beta{rest.pop('beta')}"
    return name + "".join(f"-{key}-{value}" for key, value in rest.items() if value != SETTINGS.get(key))


def described(settings):
    """Settings as golden.json has them: AdamW and the schedule by name."""
    rest = dict(settings)
    kind, warmup = rest.pop("lr_scheduler_type"), rest.pop("warmup_steps")
    schedule = f"{kind}{'' if kind == 'constant' else ' to 0'}, {warmup or 'no'} warm-up{' steps' if warmup else ''}"
    decay = {"weight_decay": rest.pop("weight_decay"), "no_decay": "biases and norm weights"}
    return {**rest, "lr_schedule": schedule, "adamw": {"betas": [0.9, 0.999], "eps": 1e-8, **decay}, "optimizer_steps": STEPS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", action="append", type=json.loads, required=True, help="settings of a run, as GRPOConfig calls them")
    parser.add_argument("--no-weights", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    arguments.out.mkdir(parents=True, exist_ok=True)
    shutil.copytree(arguments.model, arguments.out / arguments.model.name, dirs_exist_ok=True)
    vocabulary = json.loads((arguments.model / "config.json").read_text())["vocab_size"]
    batches = draw_rollouts(arguments.seed, vocabulary)
    (arguments.out / "rollouts.json").write_text(json.dumps(batches))

    golden = {}
    for differing in arguments.run:
        name = name_of(differing)
        settings = {**SETTINGS, **differing}
        steps, model = train(arguments.model, batches, settings)
        golden[name] = {**described(settings), "steps": steps}
        if not arguments.no_weights:
            tied = model.config.tie_word_embeddings
            weights = {key: value for key, value in model.state_dict().items() if not (tied and key == "lm_head.weight")}
            save_file(weights, arguments.out / f"after-{name}.safetensors", metadata={"format": "pt"})
        print(name, [step["loss"] for step in steps], flush=True)
    (arguments.out / "golden.json").write_text(json.dumps(golden, indent=1))


if __name__ == "__main__":
    main()
