"""A producer among several: `producer.py URL COUNT` sends so many jobs one by one from many
threads, once a line comes on its input, and prints their ids."""

import sys
from concurrent.futures import ThreadPoolExecutor

from noidle import Client

THREADS = 25


def main(url: str, count: int) -> None:
    with Client(url) as client, ThreadPoolExecutor(THREADS) as threads:

        def send(number: int) -> str:
            return client.generate(f"job {number}", model="echo", max_tokens=6).id

        # connected, and no later than the others
        client.generate("first", model="echo", max_tokens=1).result(timeout_s=60)
        print("ready", flush=True)
        sys.stdin.readline()
        print("\n".join(threads.map(send, range(count))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
