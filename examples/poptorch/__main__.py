"""All thirteen programs of this folder, one after the other: python examples/poptorch."""

import block_attention
import custom_op
import data_loading
import data_parallel
import digits
import fine_tuning
import mixed_precision
import mixture_of_experts
import packed_text
import phased
import pipeline
import sparse_training
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
        block_attention,
        sparse_training,
        data_parallel,
        tensor_parallel,
        mixture_of_experts,
        pipeline,
        phased,
    )
    for program in programs:
        print(f"== {program.__name__}: {(program.__doc__ or '').splitlines()[0]}")
        program.main()


if __name__ == "__main__":
    main()
