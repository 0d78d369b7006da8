"""All ten programs of this folder, one after the other: python examples/poptorch."""

import custom_op
import data_loading
import data_parallel
import digits
import fine_tuning
import mixed_precision
import packed_text
import phased
import pipeline
import tensor_parallel


def main() -> None:
    """Run each with its own settings; each prints what it found."""
    programs = (
        digits,
        mixed_precision,
        data_loading,
        packed_text,
        fine_tuning,
        custom_op,
        data_parallel,
        tensor_parallel,
        pipeline,
        phased,
    )
    for program in programs:
        print(f"== {program.__name__}: {(program.__doc__ or '').splitlines()[0]}")
        program.main()


if __name__ == "__main__":
    main()
