"""Words that say the opposite of each other, or shut each other out: general English.

Groups end with a semicolon; sides are parted by a dash, and any two sides are opposites.
The guard refuses such a pair anyway, because neither word explains the other: the list tells why.
"""

OPPOSITES = """
enable activate allow permit - disable deactivate forbid prohibit prevent; on - off; start begin open - stop
end finish close;
buy purchase - sell; add - remove delete subtract; insert - remove delete; create make - delete destroy
remove;
increase raise grow rise gain - decrease reduce lower fall drop lose shrink decline; up - down; in - out;
push - pull;
upload - download; import - export; install - uninstall remove; lock - unlock; log - unlock; encode - decode;
encrypt - decrypt; compress zip - decompress unzip extract; connect attach - disconnect detach; join - leave
split;
maximum max most highest more - minimum min least lowest less; high - low; ascending - descending; first -
last;
before - after; early - late; win - lose; borrow - lend; rent - buy; accept approve - reject refuse decline;
hot warm - cold cool; wet - dry; hard - soft easy; easy - difficult; fast quick - slow; big large - small
little; long - short;
tall - short; thick - thin; wide - narrow; deep - shallow; heavy - light; dark - light bright; strong -
weak; rich - poor;
cheap - expensive; new - old; young - old; full - empty; clean - dirty; safe - dangerous unsafe; good - bad
poor; best - worst;
legal - illegal; public - private; internal inside indoors - external outside outdoors; left - right; right
- wrong;
top - bottom; front - back rear; north - south - east - west; inner - outer; upper - lower; buyer - seller;
employer - employee;
teacher - student; landlord - tenant; parent - child; male man boy husband father brother king - female
woman girl wife mother
sister queen; sender - receiver recipient; lender - borrower; host - guest; server - client; debit - credit;
positive - negative; plus - minus; profit - loss; asset - liability; income - expense; arrive arrival -
depart departure leave;
land - take_off; ask - answer; question - answer; send - receive; give - take receive; pay - receive earn;
earn - spend;
save - spend; deposit - withdraw; freeze - thaw melt; heat - cool; boil - freeze; live - die; birth - death;
born - die;
remember - forget; find - lose hide; show - hide; appear - disappear; mute - unmute; follow - unfollow;
block - unblock;
expand - collapse; load - save unload; save - discard; read - write; print - scan; mount - unmount; pause -
resume;
upgrade - downgrade; promote - demote; hire - fire; marry - divorce; attack - defend; build - demolish
destroy; fill - empty;
tighten - loosen; sharpen - blunt dull; strengthen - weaken; lengthen - shorten; widen - narrow; thicken -
thin;
raw - cooked; sweet - sour bitter salty; ripe - unripe; fresh - stale; vegetarian vegan - meat; acid acidic
- alkaline base;
liquid - solid - gas; local - remote global; online - offline; manual - automatic; temporary - permanent;
static - dynamic;
mutable - immutable; single - double married; odd - even; vertical - horizontal; rows - columns; head -
tail; always - never;
with - without; include - exclude; present - absent; possible - impossible; advantage benefit pro -
disadvantage drawback con;
success succeed - failure fail; pass - fail; wake - sleep; ally friend - enemy; summer - winter; spring -
autumn;
morning - evening; day - night; weekday - weekend; domestic - international; arrivals - departures; incoming
- outgoing;
entrance enter - exit; oldest - newest; increase - cut; overweight - underweight; over - under; above -
below; more - fewer;
major - minor; optional - mandatory required; voluntary - compulsory; subscribe - unsubscribe; lower -
upper; synchronous -
asynchronous; ascend - descend; inflate - deflate; gain - lose; tighten - relax; harmful - harmless; guilty
- innocent;
refund - charge; plug - unplug; wrap - unwrap; pack - unpack; fold - unfold; tie - untie; dress - undress;
cover - uncover
"""
