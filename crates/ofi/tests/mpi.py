"""A program of MPI: point to point in a ring, in all sizes, probes, children, one-sided and collective
operations."""

import os
import subprocess
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
left, right = (rank - 1) % size, (rank + 1) % size

for n in (0, 1, 8, 1000, 5000, 70000, 1 << 20):
    ours, theirs = bytearray([rank + 1]) * n, bytearray(n)
    # Each only receives from its left, whoever that is.
    both = [
        world.Irecv([theirs, MPI.BYTE], source=MPI.ANY_SOURCE, tag=n % 100),
        world.Isend([ours, MPI.BYTE], dest=right, tag=n % 100),
    ]
    MPI.Request.Waitall(both)
    assert theirs == bytearray([left + 1]) * n, n
    world.Barrier()

# A message that is looked at first, and one that waits for its receive.
mine = world.isend({"from": rank}, dest=right, tag=7)
status = MPI.Status()
message = world.mprobe(source=left, status=status)
assert status.tag == 7 and message.recv() == {"from": left}
mine.wait()
assert not world.iprobe(tag=8)
mine = world.Issend([bytearray(3), MPI.BYTE], dest=right, tag=9)
world.Recv([bytearray(3), MPI.BYTE], source=left, tag=9)
mine.Wait()

# A receive that is cancelled.
never = world.Irecv([bytearray(1), MPI.BYTE], source=left, tag=10)
never.Cancel()
never.Wait(status)
assert status.Is_cancelled()

# Children come and go while messages are under way; they make no calls of MPI.
theirs = bytearray(1 << 20)
mine = world.Irecv([theirs, MPI.BYTE], source=left, tag=11)
world.Barrier()
both = [mine, world.Isend([bytearray([rank + 1]) * len(theirs), MPI.BYTE], dest=right, tag=11)]
assert os.system("exit 3") >> 8 == 3
assert subprocess.check_output(["echo", str(rank)]) == b"%d\n" % rank
MPI.Request.Waitall(both)
assert theirs == bytearray([left + 1]) * len(theirs)

# One-sided, where Open MPI was given a way: each writes to its right, adds to its left, reads both.
if sys.argv[1:] == ["one-sided"]:
    place = bytearray(1 << 17)
    window = MPI.Win.Create(place, comm=world)
    window.Fence()
    ours, one = bytearray([rank + 1]) * 100000, bytearray([1, 0, 0, 0])
    window.Put([ours, MPI.BYTE], right)
    window.Accumulate([one, MPI.INT], left, target=100000, op=MPI.SUM)
    window.Fence()
    assert place[:100000] == bytearray([left + 1]) * 100000
    assert place[100000:100004] == one
    window.Lock(left, MPI.LOCK_SHARED)
    window.Get([theirs, 100000, MPI.BYTE], left)
    window.Unlock(left)
    assert theirs[:100000] == bytearray([(left - 1) % size + 1]) * 100000
    window.Free()

assert world.allreduce(rank) == size * (size - 1) // 2
assert world.allgather(rank) == list(range(size))
assert world.alltoall([rank * size + to for to in range(size)]) == [of * size + rank for of in range(size)]
part = world.Split(rank % 2, rank)
assert part.allreduce(1) == len(range(rank % 2, size, 2))
part.Free()
world.Barrier()
if rank == 0:
    print(f"{size} ranks: all is well", flush=True)
