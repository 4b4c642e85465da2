"""Looking at tensors, graphs, programs and derivatives: clients of the stages, never used by them."""

from tenon.debug.array_summary import Summary
from tenon.debug.bad_numbers import BadNumber
from tenon.debug.bisection import Bisection, bisect
from tenon.debug.breakpoints import stop
from tenon.debug.check_numbers import check
from tenon.debug.check_repeatability import NotRepeatable
from tenon.debug.chrome_trace import Trace, trace
from tenon.debug.compare_models import Comparison, compare
from tenon.debug.console import progress
from tenon.debug.device_timelines import DeviceTimelines, device_timelines
from tenon.debug.evaluation_trace import EvaluationTrace, evaluation_trace
from tenon.debug.gradcheck import gradcheck, gradgradcheck
from tenon.debug.porting import PortingWarning, porting
from tenon.debug.profiler import Profile, profile
from tenon.debug.record_stores import watch
from tenon.debug.symbolic_derivative import Expression, expression
from tenon.debug.training_log import Log
from tenon.debug.viewer.view import View, view
from tenon.debug.watched_values import Watched

__all__ = ["BadNumber", "Bisection", "Comparison", "DeviceTimelines", "EvaluationTrace", "Expression", "Log",
           "NotRepeatable", "PortingWarning", "Profile", "Summary", "Trace", "View", "Watched", "bisect", "check",
           "compare", "device_timelines", "evaluation_trace", "expression", "gradcheck", "gradgradcheck", "porting",
           "profile", "progress", "stop", "trace", "view", "watch"]
