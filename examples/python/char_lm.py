#!/usr/bin/env python3
"""Trains a small character-level transformer with PyTorch, and continues bit for bit after it was killed at any moment.

  char_lm.py --store FOLDER [--steps N] [--save-every N] [--text FILE] [--loss-log FILE]

It is the twin of examples/char_lm, the trainer in C++: the same model, the same text, and the same entries in the
checkpoint. Either one resumes what the other has saved. Start it, kill it, start it again with the same command line: the
losses are those of a run that was not killed. The last tenth of the text is held out; the loss on it is printed at the
end.
"""

import argparse
import math

import tidemark
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, context, dropout):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.attention_dropout = nn.Dropout(dropout)
        self.out_dropout = nn.Dropout(dropout)
        # True where a query must not look.
        self.register_buffer("future", torch.triu(torch.ones(1, 1, context, context, dtype=torch.bool), diagonal=1))

    def forward(self, x):
        batch, time, width = x.shape
        projected = self.query_key_value(x).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # each [batch, heads, time, head width]
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        weights = torch.softmax(scores.masked_fill(self.future[:, :, :time, :time], -math.inf), -1)
        mixed = (self.attention_dropout(weights) @ value).transpose(1, 2).reshape(batch, time, width)
        return self.out_dropout(self.out(mixed))


class Block(nn.Module):
    def __init__(self, width, heads, context, dropout):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, context, dropout)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class CharTransformer(nn.Module):
    """int64 [batch, time] -> logits [batch, time, vocabulary]; time <= context."""

    def __init__(self, vocabulary, context, width, heads, layers, dropout):
        super().__init__()
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, context, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        # Unit-variance embeddings, PyTorch's default, would drown what the blocks add to the residual stream.
        nn.init.normal_(self.characters.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, characters):
        x = self.dropout(self.characters(characters) + self.positions(torch.arange(characters.shape[1])))
        return self.head(self.norm(self.blocks(x)))


def loss_of(model, text, starts, context):
    """The loss of predicting the character after each of the windows of `context` characters at `starts`, int64 [batch]."""
    places = starts[:, None] + torch.arange(context)
    return nn.functional.cross_entropy(model(text[places]).flatten(0, 1), text[places + 1].flatten())


def held_out_loss(model, text, context):
    model.eval()
    with torch.no_grad():
        starts = torch.arange(0, len(text) - context, context).split(32)
        losses = [loss_of(model, text, some, context).item() * len(some) for some in starts]
    model.train()
    return sum(losses) / sum(len(some) for some in starts)


def learning_rate(step, steps, peak=1e-3, floor=1e-4, warm_up=20):
    if step < warm_up:
        return peak * (step + 1) / warm_up
    progress = (step - warm_up) / max(steps - warm_up, 1)
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--store", required=True, help="folder of the checkpoints")
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3", help="any file; a character is a byte")
    parser.add_argument("--loss-log", help="append each step's exact loss to this file")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=20)
    for flag, default in (("seed", 1), ("batch", 8), ("context", 64), ("width", 192), ("heads", 6), ("layers", 4)):
        parser.add_argument(f"--{flag}", type=int, default=default)
    flags = parser.parse_args()

    # The number of threads decides the order in which floating-point sums are taken, and so their last bits.
    torch.set_num_threads(1)
    torch.manual_seed(flags.seed)
    with open(flags.text, "rb") as file:
        content = file.read()
    vocabulary = bytes(sorted(set(content)))
    whole = torch.tensor([vocabulary.index(character) for character in content])
    text, held_out = whole.split([len(whole) - len(whole) // 10, len(whole) // 10])

    model = CharTransformer(len(vocabulary), flags.context, flags.width, flags.heads, flags.layers, dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    # Everything that the next step depends on. The generator belongs to it: it draws the batches and the dropout.
    state = {"model": model, "optimizer": optimizer, "rng": torch.default_generator, "vocabulary": vocabulary.decode(),
             "characters_seen": 0}
    with tidemark.Checkpointer(flags.store, save_interval_steps=flags.save_every, save_on_steps=[flags.steps - 1],
                               retention=tidemark.Retention(max_to_keep=3, keep_best=["loss"])) as checkpointer:
        first_step = checkpointer.resume(state)  # 0 in a fresh run
        if state["vocabulary"] != vocabulary.decode():
            raise SystemExit(f"{flags.store} was trained on a text of other characters than {flags.text}")
        for step in range(first_step, flags.steps):
            optimizer.param_groups[0]["lr"] = learning_rate(step, flags.steps)
            loss = loss_of(model, text, torch.randint(len(text) - flags.context, (flags.batch,)), flags.context)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state["characters_seen"] += flags.batch * flags.context
            if flags.loss_log:
                with open(flags.loss_log, "a", encoding="ascii") as log:
                    log.write(f"{step} {loss.item().hex()}\n")
            if checkpointer.should_save(step):
                checkpointer.save(step, state, metrics={"loss": loss.item()})
    print(f"resumed at step {first_step}; held-out loss {held_out_loss(model, held_out, flags.context):.4f}")


if __name__ == "__main__":
    main()
