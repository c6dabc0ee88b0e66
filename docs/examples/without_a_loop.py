"""Code without `async`: one portal runs everything."""

import sys

from chatbot.embed import Portal, open_memory


def main(folder: str) -> str:
    with Portal() as portal:
        memory = open_memory(folder, user="mia")
        portal.run(memory.remember("Anna lives in Lisbon"))
        text = portal.run(memory.context("Where does Anna live?")).text
        portal.run(memory.aclose())
        return text


if __name__ == "__main__":
    print(main(*sys.argv[1:] or ["./data"]))
