"""Makes the table "Overload": goodput beyond capacity, by deadlines against first in, first out."""
