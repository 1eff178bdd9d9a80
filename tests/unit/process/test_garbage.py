import gc
import subprocess
import sys

from runyard_process.garbage import YOUNG_OBJECTS


def test_what_a_service_began_with_is_left_alone_and_later_garbage_is_still_collected() -> None:
    code = (
        "import gc, weakref; from runyard_process.garbage import spare_what_stays; spare_what_stays();"
        "C = type('C', (), {}); c = C(); c.me = c; gone = weakref.ref(c); del c; gc.collect();"
        "print(gc.get_freeze_count() > 0, gone() is None, gc.get_threshold()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.split() == ["True", "True", str(YOUNG_OBJECTS)]
    assert gc.get_freeze_count() == 0
