"""What transformers computes with a model directory, and how fast it samples: token ids of chats, log-probabilities, greedy texts, as JSON.

    pip install torch transformers
    python scripts/golden/forward.py models/smollm2 forward.json
    npm run bench -- model --path models/smollm2 --expected forward.json

The directory may also be one of a PEFT adapter (pip install peft), with the tokenizer of the base that it names.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CHATS = [
    [("user", "What is the capital of France?")],
    [("user", "Write three sentences about rain.")],
    [("user", "In 1969, 3 astronauts flew 384400 km – naïve café 日本語 🙂 \t end")],
    [("user", "Count from one to ten.")],
    [("user", "Who wrote Hamlet, and in which century?")],
    [("user", "Translate to French: The cat sleeps on the red chair.")],
    [("system", "You answer with one word."), ("user", "Is ice cold?")],
    [("user", "My name is Ada."), ("assistant", "Hello Ada!"), ("user", "What is my name?")],
]


def generate(model, ids, **settings):
    """New ids, seconds and CPU seconds."""
    began, cpu = time.perf_counter(), time.process_time()
    with torch.no_grad():
        all_ids = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    return all_ids[:, ids.shape[1]:], time.perf_counter() - began, time.process_time() - cpu


def compare(model, tokenizer, chat, new_tokens):
    messages = [{"role": role, "content": content} for role, content in chat]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    greedy, _, _ = generate(model, ids, max_new_tokens=new_tokens, do_sample=False)
    whole = torch.cat([ids, greedy], 1)
    with torch.no_grad():
        logprobs = torch.log_softmax(model(whole).logits[0], -1)
    return {
        "messages": messages,
        "ids": ids[0].tolist(),
        "greedy": greedy[0].tolist(),
        "text": tokenizer.decode(greedy[0]),
        # of every token but the first, after those before it
        "logprobs": logprobs[:-1].gather(1, whole[0, 1:, None])[:, 0].tolist(),
    }


def speed(model, tokenizer, rows, new_tokens):
    """Sampling at a forced length, the second of two rounds; the prompt is that of bench/model.ts."""
    messages = [{"role": "user", "content": "Tell me about the sea."}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer([text] * rows, add_special_tokens=False, return_tensors="pt").input_ids
    for _ in range(2):
        new, seconds, cpu = generate(model, ids, max_new_tokens=new_tokens, min_new_tokens=new_tokens,
                                     do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
    return {"conversations": rows, "tokensPerSecond": new.numel() / seconds, "tokensPerCpuSecond": new.numel() / cpu}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("out")
    parser.add_argument("--rows", default="1,8,32", help="conversations at once, for the speed")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per conversation")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    adapter = Path(arguments.directory) / "adapter_config.json"
    base = json.loads(adapter.read_text())["base_model_name_or_path"] if adapter.exists() else arguments.directory
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(arguments.directory, dtype=torch.float32).eval()
    result = {
        "chats": [compare(model, tokenizer, chat, arguments.tokens) for chat in CHATS],
        "speed": [speed(model, tokenizer, int(rows), arguments.tokens) for rows in arguments.rows.split(",") if rows],
    }
    with open(arguments.out, "w") as file:
        json.dump(result, file)


main()
