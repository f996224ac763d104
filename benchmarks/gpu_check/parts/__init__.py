"""Measures one thing each: facts, vision, embedding, speech, llm."""
