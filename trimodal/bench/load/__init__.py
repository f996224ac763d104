"""Sends load to anything that answers, and says what came of it: one generator and one set of statistics.

lengths                     how long what is asked is
generator                   when it is due, closed loop or open loop, and what sends it
records                     what each request did
slo, statistics             what all of them amount to
"""
