"""Run one load process: ``python -m zkmigrate.lab.load KIND --config load.json --out DIR``."""

from __future__ import annotations

import argparse
import importlib
import sys
from dataclasses import asdict
from pathlib import Path

from zkmigrate.lab.load.config import KINDS, LoadConfigError, load_config
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.process import Orders
from zkmigrate.lab.load.tree import write_tree


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m zkmigrate.lab.load")
    parser.add_argument("kind", choices=[*KINDS, "tree", "again"])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    try:
        config = load_config(options.config)
    except LoadConfigError as error:
        print(error, file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    if options.kind == "tree":
        complete = [
            write_tree(options.out, host, address, config) for host, address in config.raw_hosts.items()
        ]
        return 0 if all(complete) else 1
    if options.kind == "again":
        # imported here: the ZooKeeper kinds do not need the Kafka client to be installed
        return 0 if importlib.import_module("zkmigrate.lab.load.reread").write_log(options.out, config) else 1
    orders = Orders().listen()
    # each kind is imported alone: the ZooKeeper kinds do not need the Kafka client to be installed
    kind = importlib.import_module(f"zkmigrate.lab.load.{options.kind}")
    with Recorder(options.out, options.kind, asdict(config)) as record:
        counters = kind.run(config, record, orders)
        record.close("ordered", **counters)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
