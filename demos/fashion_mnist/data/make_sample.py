#!/usr/bin/env python3
"""Cut the sample of Fashion-MNIST that Plimsoll embeds out of the full data set.

usage: make_sample.py SOURCE_FOLDER [OUTPUT_FOLDER]

SOURCE_FOLDER holds the four full IDX files (`train-images-idx3-ubyte.gz` and
so on; Debian's package `dataset-fashion-mnist` ships them). OUTPUT_FOLDER is
this script's own folder unless named.

The files are walked from their start, and an item is kept while its class
still lacks items, so that the sample is in the source's order and every class
has the same number of items. The gzip headers hold no time and no name: the
same source and zlib give the same bytes.
"""

import gzip
import io
import struct
import sys
from pathlib import Path

CLASSES = 10
ITEMS_PER_CLASS = {"train": 100, "t10k": 25}


def read_idx(path, rank):
    """The shape and the bytes of an IDX file of unsigned bytes."""
    data = gzip.decompress(path.read_bytes())
    header = 4 + 4 * rank
    if data[:4] != bytes([0, 0, 0x08, rank]):
        sys.exit(f"{path}: not an IDX file of unsigned bytes with {rank} dimension(s)")
    shape = struct.unpack(f">{rank}I", data[4:header])
    items = data[header:]
    size = 1
    for length in shape:
        size *= length
    if len(items) != size:
        sys.exit(f"{path}: expected {size} bytes after the header, found {len(items)}")
    return shape, items


def write_idx(path, shape, items):
    """Write an IDX file of unsigned bytes, gzipped without time and name."""
    header = bytes([0, 0, 0x08, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as stream:
        stream.write(header + items)
    path.write_bytes(packed.getvalue())
    print(f"{path.name}: shape {'x'.join(map(str, shape))}, {len(packed.getvalue())} bytes")


def sample(source, output, part, per_class):
    (count, rows, columns), images = read_idx(source / f"{part}-images-idx3-ubyte.gz", 3)
    (labelled,), labels = read_idx(source / f"{part}-labels-idx1-ubyte.gz", 1)
    if count != labelled:
        sys.exit(f"{source}: {count} {part} images but {labelled} labels")
    taken = [0] * CLASSES
    kept = []
    for index, label in enumerate(labels):
        if label >= CLASSES:
            sys.exit(f"{source}: {part} label {label} at item {index} is not below {CLASSES}")
        if taken[label] < per_class:
            taken[label] += 1
            kept.append(index)
    if len(kept) != CLASSES * per_class:
        sys.exit(f"{source}: too few {part} items for {per_class} of every class")
    size = rows * columns
    write_idx(
        output / f"{part}-images-idx3-ubyte.gz",
        (len(kept), rows, columns),
        b"".join(images[index * size : (index + 1) * size] for index in kept),
    )
    write_idx(
        output / f"{part}-labels-idx1-ubyte.gz",
        (len(kept),),
        bytes(labels[index] for index in kept),
    )


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    source = Path(sys.argv[1])
    output = Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).resolve().parent
    for part, per_class in ITEMS_PER_CLASS.items():
        sample(source, output, part, per_class)


if __name__ == "__main__":
    main()
