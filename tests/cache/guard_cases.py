"""Questions that the guard must keep apart, and some that it should let pass; written for these tests."""

KEPT_APART = [
    line.split("|")
    for line in """
How do I cancel my flight from Paris to London?|How do I cancel my flight from London to Paris?
Flights to London from Paris|Flights from London to Paris
Is it cheaper to fly or to take the train?|Is it cheaper to drive or to take the train?
What do lions eat?|What eats lions?
What do lions eat?|What are lions eaten by?
Which animals eat lions?|Which animals do lions eat?
Who called Bell?|Who did Bell call?
Can I call you?|Can you call me?
Did my boss email my client?|Did my client email my boss?
Can the landlord sue me?|Can I sue the landlord?
Can I take ibuprofen before alcohol?|Can I take ibuprofen after alcohol?
Can I take ibuprofen with alcohol?|Can I take ibuprofen without alcohol?
How do I log in to my account?|How do I log out of my account?
how do i sign up|how do i sign in
How do I turn on airplane mode?|How do I turn off airplane mode?
turn the lights on in the kitchen|turn the lights off in the kitchen
Is Python 3.10 faster than 3.1?|Is Python 3.1 faster than 3.10?
What is new in Python 3.10?|What is new in Python 3.1?
How many cups are in 2 liters?|How many cups are in 2 gallons?
What is 5 feet in cm?|What is 5 cm in feet?
convert 10 km to miles|convert 10 miles to km
How do I grep -v a file?|How do I grep -V a file?
What does asyncio.Queue do?|What does queue.Queue do?
What's the weather in Paris today?|What's the weather in Paris tomorrow?
When does the store open?|When did the store open?
When does the store open?|When does the store close?
Who won the match?|Who will win the match?
who won the race|who wins the race
Do I have to pay tax?|Should I pay tax?
Can I pay tax online?|Do I have to pay tax online?
Can I bring a dog?|Can I bring a cat?
How long does a visa last?|How long does a passport last?
Where can I buy a debit card?|Where can I buy a credit card?
What is the capital of Austria?|What is the capital of Australia?
What is the population of Niger?|What is the population of Nigeria?
Who is the president of Brazil?|Who is the prime minister of Brazil?
What are symptoms of hypothyroidism?|What are symptoms of hyperthyroidism?
What is an intranet?|What is an internet?
How do I add a user?|How do I remove a user?
How can I borrow money from a friend?|How can I lend money to a friend?
Is it safe to eat raw eggs?|Is it safe to eat cooked eggs?
Which foods should I not eat while taking antibiotics?|Which foods should I eat while not taking antibiotics?
Why can't I delete the file after closing it?|Why can I delete the file after not closing it?
How do I sort a list in ascending order?|How do I sort a list in descending order?
How do I read a JSON file?|How do I write a JSON file?
How do I read a JSON file?|How do I read a CSV file?
What's the difference between list.sort and sorted?|What's the difference between list.sort and list.reverse?
What is vitamin C good for?|What is vitamin D good for?
what is plan a|what is plan b
Is the red car faster than the blue car?|Is the blue car faster than the red car?
Is a black cat with a white tail rare?|Is a white cat with a black tail rare?
Does chocolate milk contain sugar?|Does milk chocolate contain sugar?
Is a house boat expensive?|Is a boat house expensive?
What happens if I click twice?|What happens if I click once?
Can I park here on Sundays?|Can I park here on Saturdays?
Which shops are open on Christmas Eve?|Which shops are open on Christmas Day?
What happened on 3/4/2020?|What happened on 4/3/2020?
meeting at 5pm|meeting at 5am
Set an alarm for 6:30|Set an alarm for 6:45
Is 30 C hot?|Is 30 F hot?
How much is 20 dollars in euros?|How much is 20 euros in dollars?
How much does a 2 kg bag cost?|How much does a 2 lb bag cost?
Can I get a refund after 30 days?|Can I get a refund after 30 weeks?
Can I get a refund within 14 days?|Can I get a refund after 14 days?
Do I pay monthly?|Do I pay yearly?
How often should I feed a puppy a day?|How often should I feed a puppy a week?
Who wrote Hamlet?|Who played Hamlet?
When was Mozart born?|When did Mozart die?
When was Barack Obama born?|When was Michelle Obama born?
What is his salary?|What is her salary?
Where is my order?|Where is your order?
Does your app read my data?|Does my app read your data?
How do I mount a drive?|How do I unmount a drive?
What is a mutable type?|What is an immutable type?
What are the benefits of coffee?|What are the risks of coffee?
What are the advantages of nuclear power?|What are the disadvantages of nuclear power?
Is it legal to park here?|Is it illegal to park here?
Is smoking allowed?|Is smoking forbidden?
How do I gain weight?|How do I lose weight?
How to get a job at Google|How to quit a job at Google
Who teaches students?|Who do students teach?
Should I eat before running?|Should I run before eating?
Should I drink milk after coffee?|Should I drink coffee after milk?
Is my son older than my daughter allowed to be?|Is my daughter older than my son allowed to be?
Can a teacher fail a student?|Can a student fail a teacher?
Is the doctor treating the nurse?|Is the nurse treating the doctor?
How do I forward email from Gmail to Outlook?|How do I forward email from Outlook to Gmail?
Replace tabs with spaces|Replace spaces with tabs
subtract 5 from 10|subtract 10 from 5
divide 10 by 2|divide 2 by 10
what is 2 to the power of 3|what is 3 to the power of 2
What is 10 - 4?|What is 10 + 4?
What is 10 / 4?|What is 10 * 4?
Is a > b?|Is a < b?
what does x == y mean|what does x = y mean
How do I define a function in C?|How do I define a function in C++?
How do I install Java?|How do I install JavaScript?
Do cats like dogs?|Do dogs like cats?
what is the best time to visit japan|what is the best time to visit china
How to keep bananas fresh|How to make bananas ripe
Can I freeze milk?|Can I boil milk?
How do I open a bank account?|How do I close a bank account?
how do i increase the volume|how do i decrease the volume
What's the minimum wage?|What's the maximum wage?
What's the cheapest flight?|What's the most expensive flight?
Which is the fastest animal?|Which is the slowest animal?
Which is a fast animal?|Which is the fastest animal?
Name a large city in Peru|Name the largest city in Peru
Can I bring more than one bag?|Can I bring one bag?
Can I bring a bag?|Can I bring bags over 20 kg?
Why is my phone hot?|Why is my phone hot when charging?
How do I cancel my order?|How do I cancel my order after it shipped?
Is parking free?|Is parking free on weekends?
How can I contact support?|How can I contact sales?
What is the phone number of the sales team?|What is the email of the sales team?
How do I reset my password?|How do I reset my router?
How do I change my password?|How do I change my username?
Why was my card declined?|Why was my card charged?
What does the yellow light mean?|What does the green light mean?
How do I replace the left headlight?|How do I replace the right headlight?
What is inside the box?|What is outside the box?
Is the store upstairs?|Is the store downstairs?
Where do penguins live?|Why do penguins live?
How is cheese made?|Where is cheese made?
When is cheese made?|Who made cheese?
Why did the war start?|When did the war start?
How did the war start?|How did the war end?
Is it the first door?|Is it the second door?
Who was the first president?|Who was the third president?
What happened in World War I?|What happened in World War II?
Who was Elizabeth II?|Who was Elizabeth I?
who was henry the eighth|who was henry the seventh
Is a tomato a fruit?|Is a tomato a vegetable?
How many legs does a spider have?|How many eyes does a spider have?
Are all birds able to fly?|Are some birds not able to fly?
Do all birds fly?|Do only birds fly?
How do I exclude a file?|How do I include a file?
What are the side effects of aspirin?|What are the side effects of paracetamol?
Is 120 over 80 normal?|Is 80 over 120 normal?
How do I disable the firewall temporarily?|How do I disable the firewall permanently?
Can children under 12 enter?|Can children over 12 enter?
Do prices include tax?|Do prices exclude tax?
Is he taller than her?|Is she taller than him?
Does Anna owe Ben money?|Does Ben owe Anna money?
Did Google buy YouTube?|Did YouTube buy Google?
Was Google bought by YouTube?|Did Google buy YouTube?
is the earth bigger than the moon|is the moon bigger than the earth
Should I wash my hands before or after eating?|Should I wash my hands before and after eating?
What is the meaning of life?|What is the cost of living?
How do I drive to the station?|How do I walk to the station?
Which bus goes to the airport?|Which bus comes from the airport?
Was the bridge built before the tunnel?|Was the bridge built after the tunnel?
List files larger than 1 MB|List files smaller than 1 MB
Show users created since Monday|Show users created until Monday
what did he tell her|what did she tell him
Turn up the heat|Turn down the heat
How do I make the text bold?|How do I make the text italic?
Do I need an umbrella?|Do I not need an umbrella?
Is it never too late to learn?|Is it too late to learn?
Can I still apply?|Can I no longer apply?
Is water wet?|Isn't water wet enough to drink?
How do I send money to Mexico?|How do I receive money from Mexico?
What is the time difference between Tokyo and Paris?|What is the time difference between Tokyo and London?
Is tea healthier than coffee?|Is tea tastier than coffee?
How many people live in Rome?|How many people died in Rome?
How do I downgrade my plan?|How do I upgrade my plan?
Is Lisbon in Spain?|Is Lisbon in Portugal?
photos of my mother|photos from my mother
Can I cook for my dog?|Can I cook my dog?
books about Orwell|books by Orwell
How do I fly over Paris?|How do I fly to Paris?
How do I save a letter?|How do I write a letter?
How do I replace my tires?|How do I replace my exhaust?
What is the shipping fee to the US?|What is the shipping fee to us?
Do you accept returns?|Do you accept refunds?
Can I return it?|Can I exchange it?
What's the warranty on phones?|What's the warranty on laptops?
Is he a doctor?|Is she a doctor?
Why do I sneeze?|Why do you not sneeze?
How do I work from home?|How do I work at the home office?
Who manages the manager?|Who does the manager manage?
Do I need a visa to work in Japan?|Do I need a visa in Japan?
Can you see my messages?|Can I see your messages?
can i charge my phone with a laptop charger|can i charge my laptop with a phone charger
How do I connect my phone to my laptop speaker?|How do I connect my laptop to my phone speaker?
does the army report to the president|does the president report to the army
Is January colder than February?|Is February colder than January?
how to move pictures from sd card to phone|how to move pictures from phone to sd card
Who should greet first, the guest or the host?|Who should leave first, the guest or the host?
How long do cats sleep?|How long do cats live?
How tall is the Eiffel Tower?|How old is the Eiffel Tower?
How far is the moon?|How big is the moon?
How often does the bus run?|How long does the bus run?
how much sugar is in a banana|how many calories are in a banana
Is the museum open on Monday?|Is the museum closed on Monday?
How do I mute a chat?|How do I unmute a chat?
what is a gross salary|what is a net salary
Is this plant poisonous to cats?|Is this plant poisonous to dogs?
how to become a nurse|how to hire a nurse
Which pill is for pain?|Which pill is against allergies?
How do I copy a table without data?|How do I copy a table with data?
What did Napoleon say about Wellington?|What did Wellington say about Napoleon?
What is the opposite of hot?|What is the opposite of cold?
Is the cat chasing the dog?|Is the dog chasing the cat?
Was the dog chased by the cat?|Was the cat chased by the dog?
How is the cat helped by the dog?|How does the cat help the dog?
in which year did France beat Brazil|in which year did Brazil beat France
Is Anna Ben's sister?|Is Ben Anna's brother?
Who is the mother of the wife of Bob?|Who is the wife of the mother of Bob?
How do I export a list of users?|How do I import a list of users?
What's heavier, gold or lead?|What's lighter, gold or lead?
what if it rains|what if it does not rain
Which bank called me?|Which bank should I call?
Who do I call?|Who calls me?
What do plants absorb?|What absorbs plants?
Which gas do plants absorb?|Which gas absorbs plants?
Which gas is absorbed by plants?|Which plants are absorbed by gas?
Which documents do I need?|Which documents need me?
Is tax included in the price?|Is the price included in the tax?
Does the price include the tax?|Does the tax include the price?
What is a capacitor?|What is a capacitor used for?
Is Python good for web development?|Is web development good for Python?
How do I use Docker in Jenkins?|How do I use Jenkins in Docker?
How do I run Windows in Linux?|How do I run Linux in Windows?
java in python|python in java
What is the tallest mountain in the world?|What is the tallest mountain in Europe?
What is the longest river?|What is the longest river in Asia?
my phone is hot|Why is your phone hot?
Is there a way to cancel?|Must I cancel?
Is there a way to avoid tax?|Do I have to avoid tax?
What is the price of gold?|What is the weight of gold?
How long is the bridge?|How wide is the bridge?
How old is the actor?|How tall is the actor?
When is the best time to visit Rome?|What is the best way to visit Rome?
Who founded Apple?|When was Apple founded?
Where was Apple founded?|When was Apple founded?
Who was founded by Apple?|Who founded Apple?
What was discovered by Curie?|Who discovered Curie?
The dog bit the cat. What should I do?|The cat bit the dog. What should I do?
My son hit my daughter. What can I do?|My daughter hit my son. What can I do?
The app deleted my photos. How do I recover them?|My photos deleted the app. How do I recover them?
Convert a string to a list|Convert a list to a string
How do I turn water into ice?|How do I turn ice into water?
turn a list into a string|turn a string into a list
Is tea or coffee healthier?|Is tea or juice healthier?
Should Anna marry Ben?|Should Ben marry Anna?
Does the seller pay the buyer?|Does the buyer pay the seller?
How does the seller pay the buyer?|How is the seller paid by the buyer?
How much does the boss pay the worker?|How much does the worker pay the boss?
Do banks lend money to companies?|Do companies lend money to banks?
Which team beat Brazil?|Which team did Brazil beat?
Which team beat Brazil?|Which team was beaten by Brazil?
Who did Brutus kill?|Who killed Brutus?
Who was killed by Brutus?|Who killed Brutus?
Is a bus faster than a train from Rome to Milan?|Is a train faster than a bus from Rome to Milan?
Are flights from Rome to Oslo cheaper than from Oslo to Rome?|Are flights from Oslo to Rome cheaper than from Rome to Oslo?
How do I transfer photos from iPhone to Mac?|How do I transfer photos from Mac to iPhone?
What time is it in Tokyo when it is noon in Paris?|What time is it in Paris when it is noon in Tokyo?
How many grams are in an ounce?|How many ounces are in a gram?
How many yen is a dollar?|How many dollars is a yen?
How many pounds are in 10 kg?|How many kg are in 10 pounds?
What is 20% of 50?|What is 50% of 20?
What is 15 percent of 80?|What is 15 percent of 90?
Is 7 greater than 5?|Is 5 greater than 7?
How do I subtract x from y?|How do I subtract y from x?
Copy b to c|Copy c to b
Is a dog a better pet than a cat?|Is a cat a better pet than a dog?
What can I cook with eggs but without milk?|What can I cook with milk but without eggs?
Which cities are north of Rome?|Which cities are south of Rome?
How do I heat milk?|How do I cool milk?
Can I take photos in the museum?|Can I bring photos to the museum?
How do I name a function?|How do I call a function?
Can I wash wool at 30 degrees?|Can I wash wool at 60 degrees?
Is hot food allowed?|Is spicy food allowed?
Is the shop open today?|Is the shop open on holidays?
How long can I stay in Japan?|How long should I stay in Japan?
What can I eat before surgery?|What should I not eat before surgery?
How do I get a job?|How do I find a job for my son?
How do I stop smoking?|How do I start smoking?
How do I avoid getting sick?|How do I get sick?
How can I keep my cat from scratching?|How can I keep my cat scratching?
How do I prevent updates?|How do I install updates?
How do I stop my dog from barking?|How do I stop my dog from biting?
How do I get rid of ants?|How do I feed ants?
Who is the CEO of Apple?|Who is the CFO of Apple?
What is the GDP of Spain?|What is the GNP of Spain?
What does CPU mean?|What does GPU mean?
what is a vm|what is a vpn
What is a virtual machine?|What is a vending machine?
Is the flight delayed?|Was the flight delayed yesterday?
Has the train left?|When will the train leave?
I lost my passport, what now?|I found a passport, what now?
I want to sell my car|I want to buy a car
I can't log in|I can't log out
my account is locked|my account is unlocked
How do I lock my account?|Why is my account locked?
Why was I charged a fee?|Why was I not charged a fee?
Do you ship to Canada?|Do you ship from Canada?
How much is shipping to Canada?|How long is shipping to Canada?
Is shipping free above 50 euros?|Is shipping free below 50 euros?
Can I pay with cash?|Can I pay with a card?
Can I pay in euros?|Can I pay in dollars?
Is breakfast included?|Is dinner included?
Is there a pool?|Is there a gym?
Do you have vegan options?|Do you have gluten free options?
Can I check in early?|Can I check out early?
Can I check in early?|Can I check in late?
When is check in?|When is check out?
Can I cancel for free?|Can I cancel for a fee?
How do I upgrade my seat?|How do I change my seat?
Do I need a vaccine for Kenya?|Do I need a visa for Kenya?
How many hours before departure should I arrive?|How many hours after departure should I arrive?
What is the dose of ibuprofen for adults?|What is the dose of ibuprofen for children?
Is ibuprofen better than aspirin for headaches?|Is aspirin better than ibuprofen for headaches?
Can I take aspirin if I am pregnant?|Can I take aspirin if I am not pregnant?
Which vitamins help with sleep?|Which vitamins prevent sleep?
What foods raise blood pressure?|What foods lower blood pressure?
What causes high blood pressure?|What does high blood pressure cause?
What does smoking cause?|What causes smoking?
Does stress cause insomnia?|Does insomnia cause stress?
Does diabetes lead to obesity?|Does obesity lead to diabetes?
What is the interest rate on savings?|What is the interest rate on loans?
Should I buy or rent a house?|Should I buy or sell a house?
Is it better to lease or buy?|Is it worse to lease or buy?
How do I dispute a charge?|How do I accept a charge?
What's the difference between a debit and a credit card?|What's the difference between a debit and a prepaid card?
Is a Roth IRA better than a traditional IRA?|Is a traditional IRA better than a Roth IRA?
How do I open a Roth IRA?|How do I close a Roth IRA?
How do stocks affect bonds?|How do bonds affect stocks?
How do I append to a list?|How do I prepend to a list?
How do I get the first item of a list?|How do I get the last item of a list?
How do I get the keys of a dict?|How do I get the values of a dict?
How do I read a file as text?|How do I read a file as bytes?
What does list.append return?|What does list.pop return?
Difference between == and is|Difference between == and !=
Does a tuple use more memory than a list?|Does a list use more memory than a tuple?
Can a list contain a tuple?|Can a tuple contain a list?
How do I call Python from C?|How do I call C from Python?
Is None equal to False?|Is False not equal to None?
What does x += 1 do?|What does x -= 1 do?
How do I skip the first line?|How do I skip the last line?
remove all spaces|remove all newlines
replace a with b|replace b with a
How do I raise a ValueError?|How do I catch a ValueError?
How do I catch a ValueError?|How do I catch a TypeError?
When did the first man land on the moon?|When did the last man land on the moon?
Who was king before Henry?|Who was king after Henry?
Which planet is closest to the sun?|Which planet is farthest from the sun?
Which country borders Peru?|Which country does Peru border on with Chile?
What is the boiling point of water?|What is the freezing point of water?
How high can a cat jump?|How far can a cat jump?
Are there more men than women in Peru?|Are there more women than men in Peru?
What was the population of Rome in 1900?|What was the population of Rome in 2000?
Which is older, the pyramids or Stonehenge?|Which is newer, the pyramids or Stonehenge?
Who was older when they died, Bach or Mozart?|Who was younger when they died, Bach or Mozart?
What did Anna give Ben?|What did Ben give Anna?
Can a son inherit from his father?|Can a father inherit from his son?
Should parents listen to children?|Should children listen to parents?
Does my landlord have to tell me?|Do I have to tell my landlord?
Can my employer fire me?|Can I fire my employer?
Can the police search my car without a warrant?|Can the police search my car with a warrant?
remind me to call mom before dinner|remind me to call mom after dinner
set a timer for 10 minutes|set an alarm for 10 minutes past six
turn the heating up by 2 degrees|turn the heating down by 2 degrees
Play the first song|Play the next song
text anna that ben is late|text ben that anna is late
close the window in the kitchen|open the window in the kitchen
is the front door locked|is the back door locked
turn off the light in the hall|turn off the light in the bath
What's the weather like in Paris, Texas?|What's the weather like in Paris, France?
Is the meeting on March 3rd?|Is the meeting on May 3rd?
Where can I watch lions hunting zebras?|Where can I watch zebras hunting lions?
How do I sue my bank?|How does my bank sue me?
How do you feed a cow to a lion?|How do you feed a lion to a cow?
Is the manager of the assistant here?|Is the assistant of the manager here?
the wife of the king's brother|the brother of the king's wife
What is the name of Anna's brother's wife?|What is the name of Anna's wife's brother?
the capital's population of a country|the population's capital of a country
Do water filters work?|Does filter water work?
What's in a milk bottle?|What's in bottle milk?
guest house rules|house guest rules
What is bread flour?|What is flour bread?
Can I drive there with a learner's license?|Can I drive there without a learner's license?
Why did Rome attack Carthage?|Why did Carthage attack Rome?
Why was Rome attacked by Carthage?|Why did Rome attack Carthage?
why did apple sue samsung|why did samsung sue apple
Why is Python slower than C?|Why is C slower than Python?
How is butter made from milk?|How is milk made from butter?
What is bread made of?|What is made of bread?
Which wine goes with fish?|Which fish goes with wine?
What color goes with blue walls?|What color walls go with blue?
How do I pair wine with cheese?|How do I pair cheese with crackers?
How should I store bread?|Should I store bread?
Can I reuse the code?|How do I reuse the code?
Who can vote?|Who must vote?
Who should vote?|Who can vote?
What must I declare?|What can I declare?
when should i arrive|when can i arrive
Must I stop at yellow?|May I stop at yellow?
""".strip().splitlines()
]
"""Nearly the same words, another right answer."""

LET_PASS = [
    line.split("|")
    for line in """
How do I cancel my subscription?|What's the way to cancel a subscription?
how can i delete my account|I want to delete my account
What are your opening hours?|what are the business hours
How long does shipping take?|What is the delivery time?
How much does the premium plan cost?|What is the price of the premium plan?
Where can I find my invoices?|Where do I find my invoices?
Why is my internet so slow?|What's the reason my internet is so slow?
How do I fix a flat tire?|How can I repair a flat tyre?
Who invented the telephone?|who was the inventor of the telephone
When was the Eiffel Tower built?|In what year was the Eiffel Tower built?
How do I get from Paris to London?|What's the best way to get to London from Paris?
Can I bring my dog to the hotel?|Am I allowed to bring my dog to the hotel?
Do I need a visa for Japan?|Is a visa needed for Japan?
How many calories are in an apple?|What's the number of calories in an apple?
How do I sort a list in Python?|In Python, how do I sort a list?
What is photosynthesis?|Explain photosynthesis
what does idempotent mean|What is the meaning of idempotent?
What is the capital of Peru?|Tell me the capital of Peru, please.
How do I boil an egg?|how to boil eggs
Is it possible to change my flight?|Can I change my flight?
What's the refund policy?|Could you tell me what your refund policy is?
How do I turn off notifications?|How can I disable notifications?
how do i remove a red wine stain from a carpet|What's the best way to get a red wine stain out of a carpet?
Can I return a product after two weeks?|Is it possible to return a product after 14 days?
I forgot my password, what should I do?|What do I do if I forgot my password?
What's the difference between a virus and a bacterium?|How does a virus differ from a bacterium?
How tall is Mount Everest?|What is the height of Mount Everest?
How do I lower my blood pressure?|What are ways to reduce blood pressure?
Who wrote War and Peace?|Which author wrote War and Peace?
""".strip().splitlines()
]
"""Other words, the same right answer."""
