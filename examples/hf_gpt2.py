# SPDX-License-Identifier: Apache-2.0
"""Trains GPT-2 of Hugging Face's transformers for a few steps on random tokens, and lets it continue
a text; made from a configuration, so that nothing is downloaded.

    berm shadow -- python examples/hf_gpt2.py --batch 8"""
import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32, help="to generate; %(default)s")
    options = parser.parse_args()
    model = GPT2LMHeadModel(GPT2Config(n_layer=options.layers)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(options.steps):
        tokens = torch.randint(0, model.config.vocab_size, (options.batch, options.length),
                               device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step + 1}")
    model.eval()
    prompt = tokens[:, :16]
    made = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                          max_new_tokens=options.tokens, pad_token_id=model.config.eos_token_id)
    print(f"{made.shape[1] - prompt.shape[1]} tokens generated")


if __name__ == "__main__":
    main()
