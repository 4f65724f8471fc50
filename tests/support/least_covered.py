"""Which files have fewer of their lines run by the tests than asked for; a program of its own.

coverage json -o - | python least_covered.py PERCENT
"""

import json
import sys


def below(report, least):
    """(percent, file, lines never run) of each file with less than `least` percent, worst first."""
    files = report["files"].items()
    found = [(f["summary"]["percent_covered"], name, f["missing_lines"]) for name, f in files]
    return sorted(one for one in found if one[0] < least)


def main(least):
    found = below(json.load(sys.stdin), least)
    for percent, name, lines in found:
        print(f"{name}: {percent:.0f} % of its lines are run, not {least:.0f}; never {lines}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
