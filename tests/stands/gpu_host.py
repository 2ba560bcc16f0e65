"""A host with one GPU for stories: a real agent on a tree, whose kernel's log a test writes."""

import shutil
import subprocess
import time
from pathlib import Path

from tests.stands.service import ROOT, launch

NVML = ROOT / "tests/fixtures/sources/nvml/h200_busy/tree/nvml/answers.json"
GPU = "0000:b4:00.0"
FALLEN_OFF = (
    f"NVRM: Xid (PCI:{GPU[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
"""What the kernel says of a GPU that it can no longer reach."""


class GpuHost:
    """A host's agent, on a tree that has a GPU, and the real files of its ranks in `/proc`."""

    def __init__(self, folder: Path, name: str, url: str, token_file: Path | None = None) -> None:
        self.tree = folder / "tree"
        self.log = folder / "agent.log"
        self._config = folder / "agent.toml"
        information = f"proc/driver/nvidia/gpus/{GPU}/information"
        for path, text in {
            information: f"Model: \t\t NVIDIA H100\nBus Location: \t {GPU}\nDevice Minor: \t 0\n",
            "proc/sys/kernel/hostname": f"{name}\n",
            "proc/sys/kernel/random/boot_id": "0b0b0b0b-1111-2222-3333-444444444444\n",
            "proc/stat": f"cpu  1 0 1 9 0 0 0 0 0 0\nbtime {int(time.time()) - 3600}\n",
            "dev/kmsg": "6,1,3600000000,-;all is well\n",
            "dev/nvidiactl": "",
            # A machine without a part of the fabric is no host of the fleet.
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "1024\n",
        }.items():
            file = self.tree / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        # What a real H200 answered; its kernel's log is what changes.
        (self.tree / "nvml").mkdir()
        shutil.copy(NVML, self.tree / "nvml")
        token = f'token_file = "{token_file}"\n' if token_file else ""
        self._config.write_text(
            f'service_url = "{url}"\n{token}spool_dir = "{folder / "spool"}"\nlisten = ""\n'
            "flush_seconds = 0.5\nstop_seconds = 1\n"
            "[sources.host]\ninterval_seconds = 1\n[sources.kernel_log]\ninterval_seconds = 1\n"
            "[sources.nvml]\ninterval_seconds = 1\n",
            encoding="utf-8",
        )

    def start(self) -> subprocess.Popen[bytes]:
        words = ["agent", "--config", str(self._config), "--root", str(self.tree)]
        return launch(words, self.log)

    def show(self, process: Path) -> None:
        """A rank of Slurm's, as it is; that it holds a GPU is all that is made up."""
        folder = self.tree / "proc" / process.name
        (folder / "fd").mkdir(parents=True)
        for name in ("environ", "cgroup", "stat", "status", "cmdline"):
            (folder / name).write_bytes((process / name).read_bytes())
        for number, device in enumerate(("nvidiactl", "nvidia-uvm", "nvidia0"), start=3):
            (folder / "fd" / str(number)).symlink_to(f"/dev/{device}")

    def hide_all(self) -> None:
        for folder in (self.tree / "proc").glob("[0-9]*"):
            shutil.rmtree(folder)

    def kernel_says(self, text: str) -> None:
        with (self.tree / "dev/kmsg").open("a") as file:
            file.write(f"3,2,3600000001,-;{text}\n")
