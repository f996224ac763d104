"""Verbs that may stand for each other in a question without another answer to it: general English.

Groups end with a semicolon; a word may be in several, and two words are alike when they share one.
What is merely near (update, change) or depends on the trade (drop, pop, append) is left out.
"""

VERBS = """
start begin commence initiate; start launch; launch open_up; stop halt cease; stop prevent keep_from avoid;
prevent avoid stop_from; stop quit; end finish conclude; finish complete; last take go_on;
remove delete erase;
remove eliminate get_rid_of get_out take_out take_off get_off dispose_of take_away do_away_with;
cancel cancellation call_off; cancel terminate; close shut; buy purchase; get obtain acquire; get receive;
get request; add put; get retrieve fetch; order place_an_order; show display; show list; print output;
see view; see show; see look_at; watch monitor observe; follow track trace; follow watch; make create;
make build construct; make prepare; make produce; create generate produce; make force; make set_up;
produce manufacture; build construct; create set_up; change modify alter edit; change replace;
replace substitute swap exchange; replace instead_of substitute; convert transform turn_into change_into;
transform turn_into; fix repair mend; fix solve resolve; fix correct; clean clean_up cleaning; find locate;
find look_up; find discover; find find_out; find_out determine figure_out work_out;
calculate compute calculation computation; calculate work_out determine figure_out;
search seek look_for hunt_for; find look_for; help assist aid; need require requirement; want wish desire;
let allow permit enable_to; send ship dispatch; send transmit; contact get_in_touch_with reach get_hold_of;
call phone telephone ring; return send_back bring_back give_back; return give_back;
refund reimburse money_back reimbursement; pay payment; book reserve reservation booking;
choose select pick selection choice; pick harvest; check verify make_sure; check test;
check examine inspect; check see; ensure make_sure guarantee; compare comparison; happen occur take_place;
happen go_on; become get; become turn; go turn become; form develop; look appear seem; fall drop;
drop decline decrease; decrease reduce lower lessen cut_down reduction; decrease drop fall go_down;
collapse fall; fall come_down; sink go_down; increase raise boost; increase rise grow go_up;
grow cultivate; rise go_up; raise lift; merge combine unify; join unite; split divide; separate split;
store keep; save store; keep retain preserve maintain; connect link hook_up connection; attach fasten;
attach fix; stick bond glue; pair link; improve enhance; improve get_better_at; accelerate speed_up;
slow_down decelerate; heat warm warm_up heat_up reheat; cool chill cool_down; thaw defrost unfreeze;
melt melting; hide conceal; damage harm; hurt ache; hurt harm; protect shield safeguard protection;
travel go; go get; arrive come arrival get_here; depart leave departure; depart departure; live reside;
die pass_away death; rent hire rental; beat defeat; compose write; invent invention inventor;
discover discovery discoverer; establish set_up; measure measurement; iterate loop go_through iterate_over;
loop_over iterate_over iterate loop; call invoke; run execute execution; run launch;
install installation set_up; configure set_up configuration setup;
sign_in log_in log_on login log_into sign_into; sign_out log_out log_off logout;
register sign_up enroll registration enrol; register create_an_account;
activate enable turn_on switch_on put_on activation; start turn_on switch_on;
deactivate disable turn_off switch_off; turn_off shut_down power_off switch_off; shut_down shutdown;
restart reboot; reload refresh; copy duplicate; move relocate; move transfer; accept take;
reject refuse decline deny rejection; decline not_go_through; approve approval; apply application;
apply_for request; request ask_for; ask_for demand; submit hand_in turn_in submission; complain complaint;
earn make; weigh weight; recommend suggest advise recommendation suggestion; misplace lose;
relieve ease alleviate soothe; relieve reduce; treat treatment; exercise work_out train workout;
train training; eat consume; prune trim cut_back; deliver delivery; deliver arrive; speak talk; say tell;
answer reply respond; remember recall; understand comprehend;
differ difference distinguish distinction be_different; include come_with; contain include have;
contain hold; hold fit; consist_of be_made_of comprise be_composed_of; mean meaning stand_for signify;
mean definition; represent stand_for; cause trigger provoke bring_about; cause lead_to;
affect influence impact; carry transport; handle deal_with cope_with manage; handle catch;
throw_away discard throw_out; rule reign govern; rule monarch; wear put_on; hang hang_up; play put_on;
end over; hand_over give; give provide; provide offer supply; offer sell;
qualify be_eligible eligibility eligible; extend prolong lengthen extension;
expire expiration expiry run_out; renew renewal; withdraw take_out withdrawal; exchange swap trade;
undo revert roll_back rollback; reverse invert; sort order arrange; ignore skip disregard;
limit restrict limitation; limit cap; sketch draw; use utilize employ; use work_with;
work function operate; not_work broken; consume use; absorb take_in soak_up; release give_off emit;
photograph take_a_picture_of take_pictures_of shoot; learn study; practice rehearse; explain explanation;
describe description; care_for look_after take_care_of; freeze put_in_freezer; try attempt;
plug_in connect; print_out print; pay_back repay; pick_up collect; collect gather; look_into investigate;
get_up wake_up; wake_up wake; fill fill_up; free_up free; use_up finish; notice spot; note write_down;
announce announcement; enter type_in; elect election; publish release; develop development;
assess evaluate evaluation assessment; analyze analysis; predict forecast prediction; decide decision;
solve solution; visit see; transfer send wire; withdraw get_out; deposit pay_in put_in;
pay_off pay_back repay; deduct write_off; dispute contest challenge; freeze block; vomit throw_up;
heal recover get_better; recover_from get_over; fall_asleep get_to_sleep go_to_sleep;
vaccinate immunize inoculate; lower bring_down decrease; raise increase put_up; unclog unblock clear;
leak drip; revolve_around orbit go_around circle; founded establish start create;
be_known_for be_famous_for; join combine concatenate; concatenate merge combine; cast convert;
flip reverse; swap switch; file submit; complain make_a_complaint file_a_complaint; quit give_up stop;
retire retirement; invest investment; insure insurance; spot see notice; smoke smoking; hike hiking;
swim swimming; run running jog jogging; dry dry_out; store preserve; soften make_soft; tidy clean_up;
earn make_money; lose_weight slim_down; put_off postpone delay; delay hold_up; bring take_along;
take_care_of look_after; set_off leave; take_part participate; consist contain; allow accept
"""
