"""``onesigma live``: watch a sensor's stream go through a model, in the browser."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from onesigma import command
from onesigma.command import Command
from onesigma.errors import InputError
from onesigma.storage.opening import EXPORTED, SAVED, open_model

_SOURCES = """SOURCE is one of
  recording.csv   a recording: .csv, .tsv, .txt, .npy, .parquet or .wav, played at --speed
  -               lines from standard input
  /dev/ttyUSB0    a serial line, at --baud; or any other device or named pipe
  udp:5005        datagrams to that port of this machine

A line holds one number per channel, between commas, semicolons or blanks. Lines that do not are
counted, shown, and left out. The page is served to this machine only. A recording waits for the
first viewer, and the page stays when it ends. Ctrl-C stops, with exit code 0."""


def _add_options(parser: argparse.ArgumentParser) -> None:
    what = f"{EXPORTED} (PyTorch is not needed), or {SAVED}"
    parser.add_argument("model", nargs="?", metavar="MODEL", help=what)
    parser.add_argument("source", nargs="?", metavar="SOURCE", help="see above")
    command.add_switch(parser, "--demo", "the shipped smartwatch network and a recording for it")
    what = "instants per second; default: of a WAV file, of the model, or 50"
    parser.add_argument("--rate", type=float, help=what)
    parser.add_argument("--hop", type=int, help="instants between windows; default: a tenth of one")
    what = "of a recording; 2 is twice as fast, inf all it can"
    parser.add_argument("--speed", type=float, default=1, help=what)
    command.add_channels(parser)
    parser.add_argument("--baud", type=int, default=115200, help="of a serial line; default 115200")
    command.add_class_names(parser)
    parser.add_argument("--port", type=int, default=0, help="of the page; default: any free one")
    command.add_switch(parser, "--open", "open the page in the browser")


def _run(args: argparse.Namespace) -> None:
    from onesigma.pages.live.feed import open_feed
    from onesigma.pages.live.model import live_model
    from onesigma.pages.live.server import serve

    if args.demo:
        from onesigma.lab.demo.playback import demo

        model, feed = demo()
    elif args.model is None or args.source is None:
        raise InputError("Name a MODEL and a SOURCE, or say --demo. See: onesigma live --help")
    else:
        opened = open_model(args.model, threads=1)
        names, scaling = command.read_class_names(args), command.read_scaling(args)
        channels_last = args.channels_last
        model = live_model(opened, class_names=names, channels_last=channels_last, scaling=scaling)
        columns = args.columns or command.find_columns(Path(args.source), opened.contract)
        feed = open_feed(args.source, model.channels, columns=columns, baud=args.baud)
        if opened.contract is not None:
            feed = replace(feed, rate=feed.rate or opened.contract.rate)
    serve(
        model,
        feed,
        rate=args.rate,
        hop=args.hop,
        speed=args.speed,
        port=args.port,
        open_page=args.open,
    )


LIVE = Command(
    "live",
    "watch a sensor's stream go through a model, in the browser",
    _add_options,
    _run,
    description="Play a recorded or live stream through a converted model and show the signal, "
    "the answers and the uncertainty on a local web page.\n\n" + _SOURCES,
    example="onesigma live --demo --open\n"
    "  onesigma live model.onnx recording.csv --rate 50 --speed 2\n"
    "  my-sensor | onesigma live model.onnx - --rate 100",
)
