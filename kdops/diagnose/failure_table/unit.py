"""How systemd 252 and later say that a unit failed (systemd.exec(5), table "Process Exit Codes")."""

from kdops.diagnose.failure_class import FailureClass, Kind

CLASSES = (
    FailureClass(
        "unit-program-missing",
        "systemd could not run the program",
        "the environment under /opt/kdops/venvs is gone or its interpreter is",
        "deploy again: kdops builds the missing environment",
        (r"status=203/EXEC", r"Failed at step EXEC spawning", r"Unable to locate executable"),
    ),
    FailureClass(
        "unit-user-missing",
        "the service's user does not exist",
        "engine_user names a user that is not on the host",
        "deploy again (kdops creates it), or correct engine_user",
        (r"status=217/USER", r"Failed to determine user credentials"),
    ),
    FailureClass(
        "unit-sandbox",
        "systemd could not set up the unit's sandbox",
        "a path that the unit names is missing, or the kernel refuses namespaces (a container "
        "without the right)",
        "the line names the path; drop-ins may add one: kdops plan HOST",
        (
            r"status=226/NAMESPACE",
            r"Failed to set up mount namespacing",
            r"Failed at step NAMESPACE spawning",
            r"status=200/CHDIR",
            r"status=218/CAPABILITIES",
            r"status=228/SECCOMP",
        ),
    ),
    FailureClass(
        "unit-credential",
        "the API key could not be handed to the service",
        "LoadCredential= names a file that is not there or not readable",
        "set engine_api_key_file and deploy again",
        (r"status=243/CREDENTIALS", r"Failed to set up credentials"),
    ),
    FailureClass(
        "unit-environment",
        "the release's environment file is missing",
        "the folder of the release was changed or removed by hand",
        "deploy again; kdops plan HOST shows what was changed",
        (r"Failed to load environment files",),
    ),
    FailureClass(
        "drain-deadline",
        "requests were cut off at the drain deadline",
        "the service was asked to stop, and requests still ran when engine_drain_timeout was over",
        "raise engine_drain_timeout, or stop the clients first",
        (r"drain deadline of \d+ s passed", r"State 'stop-sigterm' timed out"),
    ),
    FailureClass(
        "watchdog",
        "systemd's watchdog ended the service",
        "the engine made no progress for engine_watchdog seconds: it hung, or one step takes longer "
        "than that",
        "look for an earlier failure; if steps are that long, raise engine_watchdog to 3 times the longest",
        (r"Watchdog timeout \(limit", r"Failed with result 'watchdog'"),
        kind=Kind.CONSEQUENCE,
    ),
    FailureClass(
        "start-timeout",
        "the service was not ready in time",
        "no phase of the load moved for engine_start_timeout seconds",
        "see the last phase in the journal; raise engine_start_timeout if the disk is only slow",
        (r"start operation timed out\. Terminating", r"Failed with result 'timeout'"),
        kind=Kind.CONSEQUENCE,
    ),
    FailureClass(
        "start-limit",
        "systemd gave up starting the service",
        "it failed several times in a row; the first of these failures is the cause",
        "read the start before it; kdops start HOST resets the limit",
        (r"Start request repeated too quickly", r"Failed with result 'start-limit-hit'"),
        kind=Kind.END,
    ),
)
