"""A launcher of runs for deployments of very many of them: each is a process, forked from one that has loaded Dagster and the project.

What a fresh process imports takes most of the time of a short run. Nobody notices when such a process is killed, so that tests of lost
workers take Dagster's own launcher.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from typing import Any

from dagster import DagsterInstance, DagsterRunStatus
from dagster._config import Field, UserConfigSchema
from dagster._core.execution.api import execute_run
from dagster._core.instance import InstanceRef
from dagster._core.launcher import LaunchRunContext, RunLauncher
from dagster._core.origin import JobPythonOrigin
from dagster._serdes import ConfigurableClass, ConfigurableClassData
from dagster._utils.hosted_user_process import recon_job_from_origin
from sqlalchemy.exc import OperationalError


class ForkRunLauncher(RunLauncher, ConfigurableClass):
    """Launches runs as forks of a process that has imported ``module``, which has the definitions."""

    def __init__(self, module: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._module = module
        self._inst_data = inst_data
        super().__init__()

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """How ``dagster.yaml`` names it."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        """The module."""
        return {"module": Field(str)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> ForkRunLauncher:
        """The launcher that ``dagster.yaml`` asks for."""
        return cls(module=config_value["module"], inst_data=inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Begin a run."""
        assert context.job_code_origin is not None
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload([__name__, self._module])
        forks.Process(target=_run, args=(self._instance.get_ref(), context.dagster_run.run_id, context.job_code_origin)).start()

    def terminate(self, run_id: str) -> bool:
        """Nobody asks for it."""
        raise NotImplementedError(run_id)


def _run(ref: InstanceRef, run_id: str, origin: JobPythonOrigin) -> None:
    with DagsterInstance.from_ref(ref) as instance:
        for pause in (1, 2, 4, 8, None):
            run = instance.get_run_by_id(run_id)
            assert run is not None
            try:
                execute_run(recon_job_from_origin(origin), run, instance, raise_on_error=False)
            except OperationalError:
                # Dagster's own SQLite file was locked for longer than it waits, which a starved machine is enough for.
                if pause is None or run.status is not DagsterRunStatus.STARTING:
                    raise
                time.sleep(pause)
            else:
                return
