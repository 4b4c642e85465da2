"""The `tenon` command: a table of subcommands, one function each. Each imports what it needs when it is called."""

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import tenon
from tenon.errors import ArgumentError, TenonError, user_location
from tenon.records import dataclass

Run = Callable[[argparse.Namespace], int]
Argument = Callable[[argparse.ArgumentParser], object]

REQUIRED = ("numpy", "llvmlite", "ml_dtypes")
BENCHMARKS = (
    "table", "machine", "matmul", "convolution", "attention", "elementwise", "reductions", "loops", "decoding", "calls",
    "eager")
OPTIONAL = ("scikit-learn", "rich", "matplotlib", "torch", "onnx")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code."""
    parser = argparse.ArgumentParser(prog="tenon", description="Look at, run and measure computational graphs.")
    parser.add_argument("--version", action="version", version=f"tenon {tenon.__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.help, description=command.help)
        for argument in command.arguments:
            argument(subparser)
        subparser.set_defaults(run=command.run)
    arguments = parser.parse_args(argv)
    run: Run = arguments.run
    try:
        code = run(arguments)
        sys.stdout.flush()
    except TenonError as error:  # the user's mistake: the message says all, a traceback of ours nothing
        if error.where == user_location():  # whoever called us: no line of the user's
            error.where = None
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader had enough, as in `tenon env | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more at exit
        return 1
    return code


def env(arguments: argparse.Namespace) -> int:
    from tenon.config import config
    from tenon.debug.console import table

    rows = [
        ("tenon", tenon.__version__),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        *((package, version(package)) for package in REQUIRED),
        *((f"{package} (optional)", version(package)) for package in OPTIONAL),
        ("system", platform.platform()),
        ("cpu", cpu_name()),
        ("threads", str(config().threads)),
        ("backend", config().backend),
        ("code cache", str(config().cache_dir or "off")),
        *((name, value) for name, value in sorted(os.environ.items()) if name.startswith("TENON_")),
    ]
    table("Tenon's environment", ["what", "value"], rows)
    return 0


def bench(arguments: argparse.Namespace) -> int:
    wrong = [name for name in arguments.names if name not in BENCHMARKS]
    if wrong:
        raise TenonError(f"bench: {wrong[0]!r} is unknown", hint=f"there are {', '.join(BENCHMARKS)}")
    find_benchmarks()
    for name in arguments.names or BENCHMARKS[:1]:
        print(f"== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main(["--seconds", str(arguments.seconds)])
    return 0


def find_benchmarks() -> None:
    """Let `benchmarks` be the folder that was installed with the package, or that of the repository."""
    package = Path(tenon.__file__).resolve().parent
    found = next((folder for folder in (package / "benchmarks", package.parent / "benchmarks")
                  if (folder / "timing.py").is_file()), None)
    if found is None:
        raise TenonError("bench: there are no benchmarks beside the package",
                         hint="install Tenon from a wheel, or run this in the repository")
    if "benchmarks" not in sys.modules:
        module = sys.modules["benchmarks"] = ModuleType("benchmarks")
        module.__path__ = [str(found)]          # whatever else has this name on the path


def fuzz(arguments: argparse.Namespace) -> int:
    root = Path(tenon.__file__).resolve().parent.parent
    if not (root / "tests" / "fuzz").is_dir():
        raise TenonError("fuzz: the tests are not installed with the package", hint="run this in the repository")
    files = [existing(name) for name in arguments.files]
    sys.path[:0] = [str(root), str(root / "tests")]
    code: int = importlib.import_module("fuzz.campaign").run(
        files, arguments.minutes, arguments.seed, arguments.keep, arguments.workers)
    return code


def demo(arguments: argparse.Namespace) -> int:
    from tenon.demos import digits

    if arguments.classify:
        digits.classify(arguments.folder, arguments.classify)
    else:
        digits.run(arguments.folder, arguments.epochs or digits.EPOCHS)
    return 0


def opt(arguments: argparse.Namespace) -> int:
    from tenon.debug.stage_texts import run_on_text

    load(arguments.load)
    data = sys.stdin.buffer.read() if arguments.file == "-" else existing(arguments.file).read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{arguments.file} holds no text: {error.reason} at byte {error.start}") from None
    names = [name for name in arguments.passes.split(",") if name]
    for line in run_on_text(text, names, arguments.each):
        print(line)
    return 0


def show(arguments: argparse.Namespace) -> int:
    from tenon.debug.stage_texts import show_function

    load(arguments.load)
    for line in show_function(arguments.function, arguments.types, arguments.stages.split(","), arguments.target):
        print(line)
    return 0


def view(arguments: argparse.Namespace) -> int:
    from tenon.debug.stage_texts import sampled_function
    from tenon.debug.viewer.document import document_of
    from tenon.debug.viewer.view import View

    load(arguments.load)
    if not arguments.function.rpartition(":")[0].endswith(".py"):
        raise ArgumentError(f"view: {arguments.function!r} names no function of a Python file",
                            hint="write FILE.py:FUNCTION; tenon show prints the stages of a saved function")
    function, inputs = sampled_function(arguments.function, arguments.types)
    seen = View(document_of(function, inputs, {}, times=not arguments.no_times, code=not arguments.no_code))
    for path in arguments.output or ["view.html"]:
        seen.save(path)
        print(f"{path}: {seen}")
    return 0


def profile(arguments: argparse.Namespace) -> int:
    from tenon.debug.script_profile import record_script, report

    if not arguments.script:
        raise ArgumentError("profile: no script is named", hint="tenon profile train.py")
    script, *others = arguments.script
    tables = arguments.by.split(",")
    known = ("step", "operator", "line", "phase", "module", "source")
    if wrong := [name for name in tables if name not in known]:
        raise ArgumentError(f"profile: there is no table by {wrong[0]!r}", hint=f"there are {', '.join(known)}")
    for text in report(record_script(str(existing(script)), others, arguments.trace), tables):
        print(text, flush=True)
    return 0


def info(arguments: argparse.Namespace) -> int:
    from tenon.serialization.model_summary import describe

    for line in describe(existing(arguments.file)):
        print(line)
    return 0


def run_saved(arguments: argparse.Namespace) -> int:
    from tenon.serialization.run_file import run_file, write_results

    results = run_file(str(existing(arguments.file)), arguments.input, arguments.function)
    if arguments.output:
        write_results(arguments.output, results)
    for name, value in results.items():
        shown = f"written to {arguments.output}" if arguments.output and isinstance(value, tenon.Tensor) else value
        print(f"{name}: {shown}")
    return 0


def run_onnx(arguments: argparse.Namespace) -> int:
    from tenon.onnx.model_report import report

    sizes = {}
    for text in arguments.size:
        name, _, number = text.partition("=")
        if not number.isdigit():
            raise ArgumentError(f"--size {text} is not NAME=NUMBER")
        sizes[name] = int(number)
    for line in report(str(existing(arguments.file)), arguments.input, sizes, arguments.time_limit):
        print(line)
    return 0


def port(arguments: argparse.Namespace) -> int:
    from tenon.debug.ported_script import run_ported, write_ported

    script = str(existing(arguments.file))
    if arguments.output:
        print(f"{arguments.output}: {write_ported(script, arguments.output)} lines are other ones")
    else:
        run_ported(script, arguments.arguments)
    return 0


def launch(arguments: argparse.Namespace) -> int:
    from tenon.distributed import launch as launching

    return launching.launch(arguments.n, arguments.script, arguments.hosts, arguments.max_restarts, arguments.timeout,
                            lambda text: print(text, file=sys.stderr, flush=True))


def plan(arguments: argparse.Namespace) -> int:
    from tenon.planning.make_plan import plan as planned
    from tenon.planning.transformer_model import TransformerModel

    model = TransformerModel(arguments.layers, arguments.width, arguments.heads, arguments.vocabulary, arguments.tokens,
                             arguments.batch, dtype=arguments.dtype)
    found = planned(model, cluster=arguments.cluster, devices=arguments.devices, overlap=arguments.overlap)
    if arguments.save:
        found.save(arguments.save)
    print(found)
    return 0


def load(files: Sequence[str]) -> None:
    """Run Python files for what they register: operators, passes, backends, kernels."""
    from tenon.debug.stage_texts import run_file

    for file in files:
        run_file(str(existing(file)))


def existing(name: str) -> Path:
    """The path of a file; raises ArgumentError where there is none."""
    if not Path(name).is_file():
        raise ArgumentError(f"there is no file {name!r}")
    return Path(name)


def argument(*flags: str, **options: Any) -> Argument:
    """What `add_argument` takes, to be given to a parser later."""
    return lambda parser: parser.add_argument(*flags, **options)


LOAD = argument("--load", action="append", default=[], metavar="FILE.py",
                help="a Python file to run first, for the operators, passes or backends that it registers")


@dataclass(frozen=True)
class Command:
    help: str
    run: Run
    arguments: tuple[Argument, ...] = ()


COMMANDS = {
    "demo": Command("train on real data, save, load in a fresh process, classify", demo, (
        argument("name", choices=["digits"], help="digits: a convolutional network on real handwritten digits"),
        argument("--folder", type=Path, default=Path("demo"), help="where weights and pictures go (default: demo)"),
        argument("--epochs", type=int, help="how often all images are seen"),
        argument("--classify", type=Path, metavar="WEIGHTS", help="only load these weights and classify"))),
    "show": Command("a function at every stage: graph, dataflow, passes, loops, schedules, llvm, asm", show, (
        argument("function", metavar="FILE:FUNCTION",
                 help="of a Python file, which is run as `python FILE` would, or of a file that tn.save wrote"),
        argument("types", nargs="*", metavar="TYPE", help="of the arguments, such as f32[8, 784] or f32[B, 784]"),
        argument("--stages", default="graph,passes,loops",
                 help="of graph, dataflow, passes, loops, schedules, llvm, asm, with commas (default: %(default)s)"),
        argument("--target", metavar="MACHINE",
                 help="the machine to make code for: x86-64-v3, x86-64-v4, aarch64-linux, riscv64 (default: this one)"),
        LOAD)),
    "view": Command("a function as one page to look into: source, graph, passes, kernels, memory", view, (
        argument("function", metavar="FILE:FUNCTION", help="of a Python file, which is run as `python FILE` would"),
        argument("types", nargs="*", metavar="TYPE", help="of the arguments, such as f32[8, 784] or f32[B, 784]"),
        argument("--output", action="append", metavar="FILE",
                 help="where it goes: a page (.html), the data (.json) or Graphviz's form (.dot); may be repeated "
                      "(default: view.html)"),
        argument("--no-times", action="store_true", help="measure nothing"),
        argument("--no-code", action="store_true", help="leave out LLVM's and the machine's code"),
        LOAD)),
    "profile": Command("where the time of a script goes: functions, operators, lines, modules", profile, (
        argument("--by", default="operator,source", metavar="TABLES",
                 help="comma-separated, of step, operator, line, phase, module, source (default: %(default)s)"),
        argument("--trace", metavar="FILE.json", help="what happened, for ui.perfetto.dev"),
        argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT.py [ARGUMENT ...]",
                 help="run as `python SCRIPT.py ARGUMENT ...` would"))),
    "launch": Command("a script in several processes that speak by MPI, on this machine or more", launch, (
        argument("-n", type=int, required=True, metavar="N", help="how many processes"),
        argument("--hosts", type=Path, metavar="FILE", help="the machines: a name a line, as mpiexec reads them"),
        argument("--max-restarts", type=int, default=0, metavar="K",
                 help="start all again when one fails, so many times at most (default: %(default)s)"),
        argument("--timeout", type=float, metavar="SECONDS",
                 help="how long a process waits for another one (default: TENON_TIMEOUT, or 600)"),
        argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT.py [ARGUMENT ...]",
                 help="run as `python SCRIPT.py ARGUMENT ...` would"))),
    "plan": Command("how to divide a transformer's training step over a cluster, simulated", plan, (
        argument("--cluster", default="a100", metavar="NAME|FILE.toml", help="the cluster (default: %(default)s)"),
        argument("--devices", type=int, metavar="N", help="how many of its devices (default: all)"),
        argument("--layers", type=int, required=True, metavar="N", help="of attention and a network each"),
        argument("--width", type=int, required=True, metavar="N", help="of a token's vector"),
        argument("--heads", type=int, required=True, metavar="N", help="of attention"),
        argument("--batch", type=int, default=512, metavar="N", help="texts in a step (default: %(default)s)"),
        argument("--tokens", type=int, default=2048, metavar="N", help="in a text (default: %(default)s)"),
        argument("--vocabulary", type=int, default=51200, metavar="N", help="tokens there are (default: %(default)s)"),
        argument("--dtype", default="bfloat16", help="of weights and activations (default: %(default)s)"),
        argument("--overlap", action="store_true", help="messages run beside kernels"),
        argument("--save", type=Path, metavar="FILE.json", help="write the plan there"))),
    "info": Command("what is in a saved file: functions, tensors, versions", info, (
        argument("file", metavar="FILE", help="a safetensors file, of tn.save or of any other tool"),)),
    "run": Command("a saved function on inputs from files", run_saved, (
        argument("file", metavar="FILE", help="that tn.save(path, function, inputs) wrote"),
        argument("--input", action="append", default=[], metavar="[NAME=]FILE.npy",
                 help="an argument, in order or by name; a number may stand for a file"),
        argument("--function", metavar="NAME", help="which of several (default: the first)"),
        argument("--output", metavar="FILE", help="where results go: .npy for one, .safetensors for any number"))),
    "onnx": Command("an ONNX model: what is in it, what is not supported, its results and times", run_onnx, (
        argument("file", metavar="FILE.onnx", help="the model; its external data stand beside it"),
        argument("--input", action="append", default=[], metavar="[NAME=]FILE.npy",
                 help="an input, in order or by name (default: random numbers)"),
        argument("--size", action="append", default=[], metavar="NAME=NUMBER",
                 help="an open size of the random inputs (default: 1)"),
        argument("--time-limit", type=float, metavar="SECONDS",
                 help="stop after this time; the model is then evaluated operator by operator"))),
    "port": Command("a script for PyTorch, run by Tenon, with warnings where a call means another thing", port, (
        argument("--output", metavar="FILE.py", help="write it with its imports changed, and run nothing"),
        argument("file", metavar="FILE.py", help="the script; its imports of torch become those of Tenon"),
        argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's own arguments"))),
    "opt": Command("run passes on the text of a graph, or of loops", opt, (
        argument("file", nargs="?", default="-", metavar="FILE",
                 help="text of one graph, or of one kernel's loops; - reads standard input"),
        argument("--passes", default="", help="comma-separated names, in order; none prints the graph as it was read"),
        argument("--each", action="store_true", help="print what there is after every pass"),
        LOAD)),
    "bench": Command("measure against NumPy and PyTorch on this machine", bench, (
        argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(BENCHMARKS)} (default: table)"),
        argument("--seconds", type=float, default=1.0, help="for each case (default: %(default)s)"))),
    "fuzz": Command("compute random programs in every way there is, and shrink those that differ", fuzz, (
        argument("files", nargs="*", metavar="FILE", help="judge these programs instead, as they were kept"),
        argument("--minutes", type=float, default=60.0, help="how long (default: %(default)s)"),
        argument("--seed", type=int, help="the same programs each time (default: new ones)"),
        argument("--workers", type=int, default=1, metavar="N", help="processes at a time (default: %(default)s)"),
        argument("--keep", type=Path, metavar="FOLDER", help="for what is found (default: tests/fuzz/found)"))),
    "env": Command("versions, CPU, cores, settings: what to paste into a bug report", env),
}


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def cpu_name() -> str:
    """The processor's name as the system tells it; `platform.processor()` is empty on Linux."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
