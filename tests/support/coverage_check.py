"""Which files have fewer of their lines run by the tests than asked for; a program of its own.

coverage json -o - | python coverage_check.py PERCENT
"""

import json
import sys


def files_below(report, minimum):
    """(percent, file, lines never run) of each file with less than `least` percent, worst first."""
    files = report["files"].items()
    poorly_covered = [
        (f["summary"]["percent_covered"], name, f["missing_lines"]) for name, f in files
    ]
    return sorted(entry for entry in poorly_covered if entry[0] < minimum)


def main(minimum):
    poorly_covered = files_below(json.load(sys.stdin), minimum)
    for percent, name, lines in poorly_covered:
        print(f"{name}: {percent:.0f} % of its lines are run, not {minimum:.0f}; never {lines}")
    return 1 if poorly_covered else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
