"""Makes one fault at a time in a real server under load, and judges what its clients saw: `scripts/ci/chaos`.

served            one `trimodal serve --gateway` and its processes
operations, load  what clients ask all the time, and what became of each request
judge, table      how a fault is judged, as one row of the table
faults/           the faults: under load (base.Fault), or with servers of their own
"""
