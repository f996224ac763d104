"""Nouns that may stand for each other in a question without another answer to it: general English.

Groups are parted by semicolons, as in `guard_verbs`. Kinds of one thing (visa, passport; debit, credit) are
not alike.
"""

NOUNS = """
car automobile; doctor physician; lawyer attorney; movie film; photo picture photograph image pic snapshot;
mobile cellphone cell_phone mobile_phone smartphone; phone telephone; phone mobile; phone smartphone;
laptop notebook; computer pc; television tv telly; refrigerator fridge; sofa couch; apartment flat;
elevator lift; tap faucet; trash garbage rubbish; shop store; price cost; fee charge;
job occupation profession; job position; salary wage pay; colleague coworker; child kid;
baby infant newborn; mother mum mom mama; father dad daddy; grandmother grandma granny;
grandfather grandpa; person people individual human; house home; country nation; place location spot;
journey trip; trip travel; holiday vacation; luggage baggage; schedule timetable;
train_station railway_station; bicycle bike; motorcycle motorbike; truck lorry;
airplane plane aeroplane aircraft; sidewalk pavement; parking_lot car_park; highway motorway freeway;
subway underground metro; error mistake; email mail; error fault; problem issue trouble; bug defect;
reply response answer; question query; result outcome; effect impact influence; effect consequence;
effect result; advantage benefit upside pro; disadvantage drawback downside con; goal aim objective;
purpose use; purpose goal; function purpose; difference distinction; example instance; kind type sort;
kind variety; part component; element item; amount quantity; number count; size dimension; length duration;
period duration; time duration; long duration; time period; speed velocity; speed fast; distance far;
distance length; depth deep; height tall; height high; width wide; weight heavy; age old; size big;
size large; frequency often; frequency frequent frequently; strength strong; color colour;
smell odor scent; illness disease sickness; medicine medication drug; pill tablet;
belly stomach abdomen tummy; meal dish; vegetable veggie veg; beverage drink; pan skillet frying_pan;
cut slice; cookie biscuit; eggplant aubergine; zucchini courgette; cilantro coriander;
clothes clothing garment; pants trousers; sneakers trainers running_shoes; sweater jumper pullover;
garden yard; lawn grass; soil earth dirt; rain rainfall; sunlight sunshine sun; insect bug; king monarch;
queen monarch; rule regulation; bill invoice; parcel package; shipping delivery shipment; shipping ship;
website site web_site; website webpage; app application; program application; directory folder;
screen display monitor; settings options preferences; configuration config settings; option choice;
url link web_address; video clip; song track; soccer football; match game; coach trainer; doctor gp;
gym fitness_studio; exercise workout; pupil student; class course; exam test examination; grade mark;
author writer; newspaper paper; word term; character char; digit numeral; string str; integer int;
dictionary dict; function func; parameter param; argument arg; library package; gasoline petrol;
fries french_fries; command instruction; memory ram; hard_drive hard_disk disk; disk drive; processor cpu;
graphics_card gpu; database db; internet web net; virtual_machine vm; virtual_environment venv virtualenv;
repository repo; administrator admin; information details; information data; tip advice;
documentation docs; document doc; manual guide handbook; advertisement ad advert; maximum max; minimum min;
customer_service customer_support support help_desk helpdesk; support help; warranty guarantee;
coupon voucher promo_code discount_code; employee worker; employee staff; company firm business;
tenant renter; vaccine vaccination jab; symptom sign; treatment remedy; remedy cure; pain ache;
surgery operation; mark stain; spot stain; beginning start; origin source; end ending;
postcode zip_code postal_code zip; phone_number telephone_number;
two_factor_authentication 2fa two_step_verification; artificial_intelligence ai;
united_states usa united_states_of_america america; united_kingdom uk great_britain britain;
new_york_city nyc new_york; european_union eu; postgres postgresql; kubernetes k8s; javascript js;
typescript ts; python py; second_world_war world_war_ii ww2 wwii; first_world_war world_war_i ww1 wwi;
glue adhesive; wood wooden; metal metallic; concrete cement; drywall plasterboard; top surface;
bottom base; back rear; microwave microwave_oven; mixture mix; substitute alternative replacement;
alternative option; substitute instead; vacuum_cleaner vacuum hoover; light lamp; bulb light_bulb;
socket outlet; charger power_adapter power_supply charging_cable; cable wire; remote remote_control;
volume loudness; noise sound; conversation talk; meeting appointment; population inhabitant;
capital capital_city; religion faith; picture painting; sculpture statue; composer compose; writer write;
builder build; painter paint; owner own; founder founded; leader head; boss supervisor; staff personnel;
team squad; university college; class lesson; kindergarten nursery; birthday date_of_birth birth_date;
birth born; death die; wedding marriage; marriage marry; spouse partner; error_message error;
exit_code exit_status; machine computer; row record; column field; sign symbol; sequence order; step stage;
rank position; percentage percent; ratio proportion; average mean; total sum; sum addition;
quotation quote; discount price_reduction; receipt proof_of_purchase; return_policy returns_policy;
order purchase; customer client; guest visitor; visitor tourist; traveler passenger; accommodation lodging;
coast shore; sea ocean; stone rock; thunderstorm storm; snow snowfall; fog mist; luggage suitcase;
carry_on hand_luggage cabin_bag cabin_baggage hand_baggage carry_on_bag; layover stopover;
airfare flight_price; tip gratuity; round_trip return_ticket return_trip; car_rental car_hire;
rental_car hire_car; attraction sight; airline carrier; time_zone timezone;
public_transport public_transit public_transportation; taxi cab; mortgage home_loan;
credit_score credit_rating; checking_account current_account; stock share; income earnings;
atm cash_machine cash_dispenser; exchange_rate conversion_rate; bank_statement account_statement;
pin pin_code pin_number; cart basket; gift present; gift_card gift_voucher; free_shipping free_delivery;
item product article; brand make; flu influenza; fever high_temperature;
stomach_ache stomach_pain bellyache tummy_ache; headache head_pain; high_blood_pressure hypertension;
low_blood_pressure hypotension; heart_attack myocardial_infarction; dose dosage;
side_effect adverse_effect; painkiller pain_reliever; blood_sugar blood_glucose; period menstruation;
mold mildew; power_cut power_outage blackout; washing_machine washer; tumble_dryer dryer; exception error;
current_directory working_directory current_working_directory; uppercase upper_case capital_letter;
lowercase lower_case small_letter; newline line_break; whitespace blank; boolean bool; environment env;
duplicate copy; document paper; requirement condition; deadline due_date cut_off; birthday date_of_birth;
neighborhood area district; inhabitant resident; hobby pastime; workout training; beginner novice newbie;
expert specialist; cellar basement; closet wardrobe; curtain drape; diaper nappy; dummy pacifier;
flashlight torch; stroller pram buggy; mailbox letterbox; soda soft_drink fizzy_drink; oatmeal porridge;
shrimp prawn; ground_beef minced_beef mince; baking_soda bicarbonate_of_soda; powdered_sugar icing_sugar;
cornstarch cornflour; heavy_cream double_cream
"""
