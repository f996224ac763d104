"""Sends load to anything that answers, and says what came of it: one generator and one set of statistics.

lengths, arrivals           what is asked, and when it is due
generator                   sends it: closed loop or open loop
records                     what each request did
slo, statistics             what all of them amount to
"""
